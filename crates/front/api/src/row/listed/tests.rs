use super::*;

struct Thing {
    name: String,
    size: u64,
}

impl Listed for Thing {
    const SORTS: &'static [&'static str] = &["size"];

    fn order(&self) -> Key {
        key(&self.name)
    }

    fn sort(&self, _: &str) -> Atom {
        self.size.into()
    }

    fn words(&self) -> Vec<Cow<'_, str>> {
        vec![self.name.as_str().into()]
    }
}

/// 100 items with ten different sizes.
fn things() -> Vec<Thing> {
    (0..100).rev().map(|n| Thing { name: format!("thing{n:02}"), size: n % 10 }).collect()
}

/// Names on all pages, each requested with the cursor of the one before.
fn walked(mut page: Page) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let (items, total, next) = page.cut(things());
        assert_eq!(total, 100, "the total is that of all pages");
        assert!(items.len() <= page.limit.unwrap_or(usize::MAX));
        names.extend(items.into_iter().map(|thing| thing.name));
        let Some(next) = next else { return names };
        page.after = Some(parse_cursor(&next).expect("our own cursor"));
    }
}

#[test]
fn pages_together_are_the_whole_list_in_every_order() {
    for sort in [None, Some("size".to_owned())] {
        for descending in [false, true] {
            let whole = walked(Page { sort: sort.clone(), descending, ..Page::default() });
            for limit in [1, 7, 50, 99, 100, 101] {
                let page = Page { limit: Some(limit), sort: sort.clone(), descending, ..Page::default() };
                assert_eq!(walked(page), whole, "{sort:?} {descending} {limit}");
            }
            let mut unique = whole.clone();
            unique.sort();
            unique.dedup();
            assert_eq!(unique.len(), 100);
        }
    }
}

#[test]
fn page_goes_on_where_it_ended_though_the_last_thing_is_gone() {
    let page = Page { limit: Some(10), ..Page::default() };
    let (items, _, next) = page.cut(things());
    assert_eq!(items.last().map(|thing| thing.name.as_str()), Some("thing09"));
    let after = next.and_then(|next| parse_cursor(&next));
    let left = things().into_iter().filter(|thing| thing.name != "thing09").collect();
    let (items, _, _) = Page { after, ..page }.cut(left);
    assert_eq!(items.first().map(|thing| thing.name.as_str()), Some("thing10"));
}

#[test]
fn search_sees_parts_of_words_whatever_their_case() {
    let page = Page { search: Some("ing4".to_owned()), limit: Some(3), ..Page::default() };
    let (items, total, next) = page.cut(things());
    assert_eq!((items.len(), total, next.is_some()), (3, 10, true));
    let (items, total, next) = Page { search: Some("nothing".to_owned()), ..Page::default() }.cut(things());
    assert_eq!((items.len(), total, next), (0, 0, None));
}

#[test]
fn cursor_that_is_none_of_ours_is_none() {
    for text in ["", "0", "zz", "00", "5b5d0", "7b7d", "ü"] {
        assert_eq!(parse_cursor(text), None, "{text}");
    }
}
