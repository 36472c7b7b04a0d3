//! Tasks in numbered places that are used again.

/// Names one task of one connection; never names a later one in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl TaskId {
    /// The id in 32 bits: no two tasks that live at the same time have the same, nor do a task and those
    /// that follow it in its place for a long time.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.generation << 16 | (self.index & 0xffff)
    }
}

/// Values in numbered places. Grows to its largest use and allocates nothing after that.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        assert!(self.free.len() <= self.places.len(), "a place is free once");
        self.places.len() - self.free.len()
    }

    /// Gives `value` a place.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> TaskId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, value: None });
            u32::try_from(self.places.len() - 1).expect("callers bound the places")
        });
        let place = &mut self.places[index as usize];
        assert!(place.value.is_none(), "a place that is free holds no task");
        place.value = Some(value);
        TaskId { index, generation: place.generation }
    }

    /// The value that `id` names, while it is there.
    pub(crate) fn find(&self, id: TaskId) -> Option<&T> {
        self.places.get(id.index as usize).filter(|place| place.generation == id.generation)?.value.as_ref()
    }

    /// The value that `id` names, while it is there.
    pub(crate) fn find_mut(&mut self, id: TaskId) -> Option<&mut T> {
        place_of(&mut self.places, id)?.value.as_mut()
    }

    /// What names the value in the place `index`.
    pub(crate) fn id_at(&self, index: u32) -> Option<TaskId> {
        let place = self.places.get(index as usize)?;
        place.value.is_some().then_some(TaskId { index, generation: place.generation })
    }

    /// Takes the value out; its place is free and `id` names nothing any more.
    pub(crate) fn remove(&mut self, id: TaskId) -> Option<T> {
        let place = place_of(&mut self.places, id)?;
        let value = place.value.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(id.index);
        Some(value)
    }

    /// As [`Slab::remove`], for a value that nobody wants: it is dropped where it is. True when it was there.
    pub(crate) fn clear(&mut self, id: TaskId) -> bool {
        let Some(place) = place_of(&mut self.places, id).filter(|place| place.value.is_some()) else { return false };
        place.value = None;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(id.index);
        true
    }

    /// All values, by place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TaskId, &T)> {
        self.places.iter().zip(0u32..).filter_map(|(place, index)| {
            place.value.as_ref().map(|value| (TaskId { index, generation: place.generation }, value))
        })
    }
}

/// The place that `id` names, while it is the same one's.
fn place_of<T>(places: &mut [Place<T>], id: TaskId) -> Option<&mut Place<T>> {
    places.get_mut(id.index as usize).filter(|place| place.generation == id.generation)
}
