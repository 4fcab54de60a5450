//! A directory whose files have bad days, for the tests that mount one.

use bowwave_io::{
    Attr, DirTree, Error, Faults, FaultyStorage, FileStorage, Listing, Storage, Tree, TreePath, Until,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory; `faults` are drawn anew for each file that is opened.
pub(crate) struct FaultyTree<F> {
    tree: DirTree,
    faults: F,
}

impl<F: Fn() -> Faults> FaultyTree<F> {
    pub(crate) fn open(source: &Path, faults: F) -> Self {
        Self { tree: DirTree::open(source).unwrap(), faults }
    }
}

impl<F: Fn() -> Faults + Send + Sync> Tree for FaultyTree<F> {
    fn name(&self) -> &str {
        self.tree.name()
    }
    fn list(&self, folder: &TreePath, until: &Until) -> Result<Listing, Error> {
        self.tree.list(folder, until)
    }
    fn look_up(&self, path: &TreePath, until: &Until) -> Result<Attr, Error> {
        self.tree.look_up(path, until)
    }
    fn open(&self, path: &TreePath, _: &Until) -> Result<Arc<dyn Storage>, Error> {
        let inner = FileStorage::open(Path::new(self.tree.name()).join(path.as_path()))?;
        Ok(Arc::new(FaultyStorage::new(inner, (self.faults)())))
    }
    fn read_link(&self, path: &TreePath, until: &Until) -> Result<PathBuf, Error> {
        self.tree.read_link(path, until)
    }
}
