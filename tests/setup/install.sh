# Sourced by ./run and ./test: installs what is missing on Debian 12. Not run by itself.
# shellcheck shell=sh

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# need_tools PACKAGE:COMMAND... — each command is there, or its Debian package is installed.
need_tools() {
    missing=
    for pair in "$@"; do
        command -v "${pair#*:}" >/dev/null 2>&1 || missing="$missing ${pair%%:*}"
    done
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null 2>&1 || die "these packages are missing and there is no apt-get to install them:$missing"
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 || die "these packages are missing, and only root can install them:$missing"
        as_root=sudo
    fi
    say "installing$missing"
    # shellcheck disable=SC2086
    $as_root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null ||
        die "apt-get could not install$missing; look at its message above"
}

# need_block_driver — qemu can speak iSCSI: its driver is a package of its own.
need_block_driver() {
    ls /usr/lib/*/qemu/block-iscsi.so >/dev/null 2>&1 && return 0
    need_tools qemu-block-extra:no-such-command-so-install-it
}

# need_static_busybox — it runs in an initramfs, where there are no libraries.
need_static_busybox() {
    case $(LC_ALL=C ldd /bin/busybox 2>&1) in
        *"not a dynamic executable"* | *"statically linked"*) return 0 ;;
    esac
    need_tools busybox-static:no-such-command-so-install-it
}

# need_rust — cargo is there, with a compiler that is new enough.
need_rust() {
    wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    PATH="$HOME/.cargo/bin:$PATH"
    export PATH
    if command -v rustup >/dev/null 2>&1; then
        rustup run "$wanted" rustc --version >/dev/null 2>&1 && return 0
        say "installing Rust $wanted"
        rustup toolchain install "$wanted" --profile minimal --component clippy --component rustfmt ||
            die "rustup could not install Rust $wanted; check the connection to static.rust-lang.org"
        return 0
    fi
    if command -v cargo >/dev/null 2>&1; then
        have=$(rustc --version | cut -d' ' -f2)
        [ "$(printf '%s\n%s\n' "$wanted" "$have" | sort -V | head -n1)" = "$wanted" ] && return 0
        say "Rust $have is older than $wanted"
    fi
    need_tools curl:curl ca-certificates:update-ca-certificates
    say "installing Rust $wanted by rustup"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal --default-toolchain "$wanted" --component clippy rustfmt ||
        die "Rust $wanted is not here and could not be had from sh.rustup.rs; install it and start again"
}

# need_cargo_deny — `cargo deny` of this version is there; without optimisation it is built in two minutes.
need_cargo_deny() {
    wanted=0.20.2
    case $(cargo deny --version 2>/dev/null) in *" $wanted") return 0 ;; esac
    say "installing cargo-deny $wanted"
    cargo install --quiet --debug --locked --force "cargo-deny@$wanted" || die "cargo-deny $wanted could not be installed; look at the message of cargo above"
}
