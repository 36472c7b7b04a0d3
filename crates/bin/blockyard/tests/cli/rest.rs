//! Equal coverage of command line and REST API: each command is run, and its requests are looked up in the route table.

use crate::lab::Lab;
use api::Row;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// A run of every command that sends requests; refused requests count as well.
pub(crate) const COMMANDS: &str = "
status
top --once
tune show --root .
tune apply --root . --dry-run
disk add --name d0 --create 512MiB d0.img
disk add --name d1 --create 512MiB d1.img
disk add --name d2 --create 512MiB d2.img
disk add --name d3 --create 512MiB d3.img
disk list
disk find
disk show d0
disk locate d0 on
disk spare add d3
disk spare remove d3
pool create tank --level raid1 d0 d1
pool list
pool show tank
pool set tank rebuild=fast
pool pause tank
pool resume tank
pool scrub start tank
pool scrub status tank
operation list
operation show scrub:tank
operation cancel scrub:tank
pool scrub stop tank
pool check tank
pool repair tank --yes
pool dump tank
pool add-group tank --level raid1 d2
pool add-log tank d2 --yes
pool remove-log tank
pool grow tank
pool key tank --file tank.key
volume create tank/vm1 8MiB
volume create ram 8MiB --ram
volume list
volume show tank/vm1
volume set tank/vm1 --cache-share 200
volume resize tank/vm1 16MiB
volume latency tank/vm1
volume trace tank/vm1
volume trace tank/vm1 --start
volume trace tank/vm1 --out vm1.trace
volume trace tank/vm1 --stop
volume reservations tank/vm1
volume reservations tank/vm1 --clear --yes
snapshot create tank/vm1 monday
snapshot list
snapshot lock tank/vm1@monday --lock-until 2020-01-01T00:00:00Z
volume clone tank/vm1@monday tank/vm2
volume copy tank/vm1@monday tank --name vm3
volume cancel-copy tank/vm3
volume rollback tank/vm1 monday --yes
host add web --initiator iqn.2001-04.com.example:web
host list
host show web
host change web --add-initiator iqn.2001-04.com.example:web2
host denied
group add cluster web
group list
group leave cluster web
group join cluster web
present tank/vm1 web
up tank/vm1 16MiB --host web
present tank/vm1 cluster --also ram --spread 2
host explain web tank/vm1
presentation list
connect web --os linux
tune host web --os linux
unpresent tank/vm1 web
group forget-luns cluster
group remove cluster
host forget-luns web
host remove web
target add fast
target list
target remove fast
auth show
auth weakest sha-256
auth discovery --as-host
session list
debug tasks
log
doctor
session show 1
session record 9 --to nine.pcapng
session kill 9
alert active
alert list
alert add ops --webhook http://127.0.0.1:9/hook
alert set ops --least critical
alert test ops
alert silence pool tank --for 1h
alert silenced
alert silence pool tank --off
alert acknowledge 999
alert remove ops
portal list
portal add 127.0.0.1:0
portal set 10.0.0.1:3260 weight=2
portal drain 10.0.0.1:3260
portal resume 10.0.0.1:3260
portal groups
portal group 1 preferred=yes
portal balance
portal balance bytes
portal remove 127.0.0.9:3260
isns show
isns set 127.0.0.1:9
isns off
state show
state accept
event list
user list
user add alice --role operator --password-file password
user set alice --role viewer
user logins
user logout 5f1c22a09b7d4e10
user remove alice
token create backup --role operator --scope snapshots
token list
token revoke backup
audit list
audit verify
audit forward show
audit forward off
audit export --to audit.jsonl
web show
web link
export
diff -f array.toml
apply -f array.toml --yes
config list
config restore 1 --yes
snapshot delete tank/vm1@monday --yes
volume delete tank/vm2 --yes
pool add-member tank d2
disk fail d0
disk replace d0 d3 --yes
pool export tank
pool import tank
pool destroy tank --yes
disk remove d0
";

const LOGIN: &str = "for logins of browsers; the local socket needs no login";

/// Routes without a command, with the reason.
const NO_COMMAND: [(&str, &str); 18] = [
    ("GET /groups/{name}", "`group list` shows all of it"),
    ("GET /targets/{name}", "`target list` shows all of it"),
    ("GET /portals/{address}", "`portal list` shows all of it"),
    ("GET /portal-groups/{tag}", "`portal groups` shows all of it"),
    ("GET /snapshots/{name}", "`snapshot list` shows all of it"),
    ("GET /receivers/{name}", "`alert list` shows all of it"),
    ("GET /users/{name}", "`user list` shows all of it"),
    ("GET /session", LOGIN),
    ("POST /session", LOGIN),
    ("POST /session/link", LOGIN),
    ("DELETE /session", LOGIN),
    ("POST /session/password", LOGIN),
    ("POST /session/second-factor", LOGIN),
    ("POST /session/second-factor/confirm", LOGIN),
    ("POST /session/second-factor/removal", LOGIN),
    ("GET /openapi.json", "for programs"),
    ("GET /metrics", "for Prometheus"),
    ("GET /stream", "for the console, and for `top` without `--once`"),
];

/// Requests that commands send only if there is something to do, which is not the case on an idle array.
const SOMETIMES: [(&str, &str); 1] = [("POST /pools/{name}/check", "pool repair")];

/// Commands without a route, with the reason.
const NO_ROW: [(&str, &str); 9] = [
    ("serve", "it is the daemon"),
    ("completion", "it needs no daemon"),
    ("manual", "it needs no daemon"),
    ("conform", "it asks a target over iSCSI"),
    ("ready", "it asks a target over iSCSI"),
    ("support", "it gathers what many rows show"),
    ("lab", "it puts loads on targets over iSCSI"),
    ("state recover", "it reads disks, and needs no daemon"),
    ("tune", "it looks at the machine and sets it; `tune revert` needs no daemon"),
];

/// Returns the words of a command that name the action, without its arguments.
fn verbs(command: &str, known: &BTreeSet<String>) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    let longest = (1..=3.min(words.len())).rev().map(|n| words[..n].join(" ")).find(|words| known.contains(words));
    longest.unwrap_or_else(|| panic!("there is no command {command}"))
}

/// Returns every command listed in the help.
fn all_commands(lab: &Lab) -> BTreeSet<String> {
    fn below(lab: &Lab, noun: &[&str], found: &mut BTreeSet<String>) {
        let help = lab.good(&[noun, &["--help"]].concat());
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let names: Vec<&str> = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
        let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty() && *name != "help").collect();
        if names.is_empty() {
            found.insert(noun.join(" "));
        }
        for name in names {
            below(lab, &[noun, &[name]].concat(), found);
        }
    }
    let mut found = BTreeSet::new();
    below(lab, &[], &mut found);
    found
}

/// Returns true if the route answers the path.
fn answers(row: &Row, path: &str) -> bool {
    let (mut templates, mut parts) = (row.path.split('/'), path.split('/'));
    loop {
        match (templates.next(), parts.next()) {
            (Some(template), Some(_)) if template.starts_with("{*") => return true,
            (Some(template), Some(part)) if template == part || template.starts_with('{') => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

/// Returns the route of a request: of several, the one with the fewest parameters.
fn row_of<'a>(rows: &'a [Row], request: &str) -> &'a Row {
    let (method, path) = request.split_once(' ').expect("a method and a path");
    let path = path.split('?').next().expect("a path");
    let mut found: Vec<&Row> = rows.iter().filter(|row| row.method == method && answers(row, path)).collect();
    found.sort_by_key(|row| row.path.matches('{').count());
    found.first().unwrap_or_else(|| panic!("no row answers {request}"))
}

fn called(row: &Row) -> String {
    format!("{} {}", row.method, row.path.replace("{*", "{"))
}

/// Returns the table of the manual with the commands for each route.
fn table(asked: &BTreeMap<String, BTreeSet<String>>) -> String {
    let mut missing = Vec::new();
    let mut table = String::from("| route | minimum role | effect | command |\n|---|---|---|---|\n");
    for row in api::table() {
        let name = called(row);
        let commands = match (asked.get(&name), NO_COMMAND.iter().find(|(row, _)| *row == name)) {
            (Some(commands), _) => commands.iter().map(|command| format!("`{command}`")).collect::<Vec<_>>().join(", "),
            (None, Some((_, why))) => format!("none: {why}"),
            (None, None) => {
                missing.push(name);
                continue;
            }
        };
        writeln!(table, "| `{name}` | {} | {} | {commands} |", row.role, row.summary).expect("a string takes all text");
    }
    assert!(missing.is_empty(), "these have no command; write one, or say why in NO_COMMAND: {missing:#?}");
    table
}

#[test]
fn each_row_has_a_command_and_each_command_a_row() {
    let lab = Lab::new();
    fs::write(lab.dir.path().join("array.toml"), lab.good(&["export"])).expect("writes");
    fs::write(lab.dir.path().join("password"), "correct horse battery staple\n").expect("writes");
    let known = all_commands(&lab);
    let (rows, mut asked, mut idle) = (api::table(), BTreeMap::<String, BTreeSet<String>>::new(), known.clone());
    for command in COMMANDS.lines().filter(|line| !line.is_empty()) {
        let verbs = verbs(command, &known);
        let words: Vec<&str> = command.split(' ').chain(["--requests"]).collect();
        let outcome = lab.run(&words);
        let requests: Vec<&str> = outcome.stderr.lines().filter_map(|line| line.strip_prefix("> ")).collect();
        assert!(!requests.is_empty(), "{command} asks nothing: {}", outcome.stderr);
        idle.remove(&verbs);
        for request in requests {
            asked.entry(called(row_of(rows, request))).or_default().insert(verbs.clone());
        }
    }
    for (row, command) in SOMETIMES {
        assert!(
            known.contains(command) && asked.insert(row.to_owned(), [command.to_owned()].into()).is_none(),
            "{row}"
        );
    }
    idle.retain(|command| {
        !NO_ROW.iter().any(|(without, _)| command == without || command.split(' ').next() == Some(*without))
    });
    assert!(idle.is_empty(), "COMMANDS runs each command, or NO_ROW says why not: {idle:?}");
    for (row, _) in NO_COMMAND {
        assert!(!asked.contains_key(row), "{row} has a command: {:?}", asked[row]);
        assert!(rows.iter().any(|known| called(known) == row), "there is no row {row}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/operate/api.md");
    let text = fs::read_to_string(&path).expect("the page");
    let (before, _) = text.split_once("| route |").expect("the page has the table at its end");
    let real = format!("{before}{}", table(&asked));
    if std::env::var_os("BLOCKYARD_BLESS").is_some() {
        fs::write(&path, &real).expect("writes");
        return;
    }
    assert!(text == real, "docs/operate/api.md is not what the commands ask; BLOCKYARD_BLESS=1 writes it anew");
}
