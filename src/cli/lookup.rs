//! The catalogue and the file system, as sweep files see them.

use std::path::Path;
use std::sync::Arc;

use crate::catalog::{Catalog, Gpu, Model};
use crate::diag::{Diagnostic, Diagnostics, suggestion};
use crate::scheduler::router::ROUTERS;
use crate::scheduler::{SCHEDULERS, scheduler};
use crate::spec::{Lookup, Trace};
use crate::workload::trace;

impl Lookup for Catalog {
    fn model(&self, name: &str) -> Result<Arc<Model>, Diagnostics> {
        Self::model(self, name).map(Arc::new)
    }

    fn gpu(&self, name: &str) -> Result<Arc<Gpu>, Diagnostics> {
        Self::gpu(self, name).map(Arc::new)
    }

    fn engines(&self) -> Vec<String> {
        self.engine_names()
    }

    fn scheduler_of(&self, engine: &str) -> Result<&'static str, Diagnostics> {
        let name = self.engine(engine)?.scheduler;
        scheduler(&name).map(|scheduler| scheduler.name()).ok_or_else(|| {
            let mut diagnostic = Diagnostic::new(format!("engine `{engine}` names the unknown scheduler `{name}`"));
            diagnostic.help = suggestion(&name, &self.schedulers());
            diagnostic.into()
        })
    }

    fn schedulers(&self) -> Vec<&'static str> {
        SCHEDULERS.iter().map(|scheduler| scheduler.name()).collect()
    }

    fn routers(&self) -> Vec<&'static str> {
        ROUTERS.iter().map(|router| router.name()).collect()
    }

    fn trace(&self, path: &Path) -> Result<Arc<Trace>, Diagnostics> {
        trace::read(path)
    }

    fn lengths(&self, path: &Path, column: &str) -> Result<Vec<u32>, Diagnostics> {
        trace::read_lengths(path, column)
    }
}
