//! Slab allocator for tasks with generation-checked identifiers.

/// Identifier of a task of one connection; never refers to a later task in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl TaskId {
    /// Returns the identifier in 32 bits: unique among live tasks, and not repeated in the same place for 65,536
    /// generations.
    #[must_use]
    pub fn bits(self) -> u32 {
        // The generation distinguishes successive tasks in one place, so that a late answer does not reach the wrong
        // task.
        self.generation << 16 | (self.index & 0xffff)
    }
}

/// Slab of values. Grows to its peak and does not allocate after that.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        assert!(self.free.len() <= self.places.len(), "a place is free once");
        self.places.len() - self.free.len()
    }

    /// Stores `value` in a free place.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> TaskId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Slot { generation: 0, value: None });
            u32::try_from(self.places.len() - 1).expect("callers bound the places")
        });
        let place = &mut self.places[index as usize];
        assert!(place.value.is_none(), "a place that is free holds no task");
        place.value = Some(value);
        TaskId { index, generation: place.generation }
    }

    /// Returns the value of `id`, if present.
    pub(crate) fn find(&self, id: TaskId) -> Option<&T> {
        self.places.get(id.index as usize).filter(|place| place.generation == id.generation)?.value.as_ref()
    }

    /// Returns the value of `id`, if present.
    pub(crate) fn find_mut(&mut self, id: TaskId) -> Option<&mut T> {
        place_of(&mut self.places, id)?.value.as_mut()
    }

    /// Returns the identifier of the value in place `index`.
    pub(crate) fn id_at(&self, index: u32) -> Option<TaskId> {
        let place = self.places.get(index as usize)?;
        place.value.is_some().then_some(TaskId { index, generation: place.generation })
    }

    /// Removes and returns the value; its place is free and `id` becomes stale.
    pub(crate) fn remove(&mut self, id: TaskId) -> Option<T> {
        let place = place_of(&mut self.places, id)?;
        let value = place.value.take()?;
        // All identifiers of the removed task become stale.
        place.generation = place.generation.wrapping_add(1);
        self.free.push(id.index);
        Some(value)
    }

    /// Removes the value and drops it in place, without a move. True when it was present.
    pub(crate) fn clear(&mut self, id: TaskId) -> bool {
        let Some(place) = place_of(&mut self.places, id).filter(|place| place.value.is_some()) else { return false };
        // Dropped in place: moving a large task out would cost a copy.
        place.value = None;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(id.index);
        true
    }

    /// Iterates over all values in order of places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TaskId, &T)> {
        self.places.iter().zip(0u32..).filter_map(|(place, index)| {
            place.value.as_ref().map(|value| (TaskId { index, generation: place.generation }, value))
        })
    }
}

/// Returns the place of `id`, unless it has been reused.
fn place_of<T>(places: &mut [Slot<T>], id: TaskId) -> Option<&mut Slot<T>> {
    places.get_mut(id.index as usize).filter(|place| place.generation == id.generation)
}
