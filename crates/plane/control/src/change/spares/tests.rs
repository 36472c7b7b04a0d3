use super::*;

fn spare(disk: &str, mib: u64, pool: Option<&str>) -> Spare {
    let name = |text: &str| text.parse().expect("a name");
    Spare { disk: name(disk), size: Size::mib(mib), pool: pool.map(name), force: false }
}

fn chosen(spares: &[Spare], pool: &str, mib: u64) -> Vec<String> {
    let pool = pool.parse().expect("a name");
    matching_spares(spares, &pool, Size::mib(mib)).into_iter().map(|spare| spare.disk.to_string()).collect()
}

#[test]
fn spare_of_the_pool_goes_before_one_of_all_and_small_before_large() {
    let spares = [
        spare("any-small", 100, None),
        spare("own-large", 400, Some("tank")),
        spare("own-small", 200, Some("tank")),
        spare("other", 200, Some("pond")),
        spare("any-large", 800, None),
    ];
    assert_eq!(chosen(&spares, "tank", 100), ["own-small", "own-large", "any-small", "any-large"]);
    assert_eq!(chosen(&spares, "tank", 201), ["own-large", "any-large"]);
    assert_eq!(chosen(&spares, "tank", 801), Vec::<String>::new());
    assert_eq!(chosen(&spares, "lake", 100), ["any-small", "any-large"]);
}
