use crate::cue::{Error, Evaluator, Inspection};

/// The evaluator as it reads templates for reviews.
pub trait InspectTemplate: Sync {
    /// Parses a template, and compiles it if `is_compiled` is true.
    fn inspect(
        &self,
        namespace: &str,
        template: &str,
        is_compiled: bool,
    ) -> impl Future<Output = Result<Inspection, Error>> + Send;
}

impl InspectTemplate for Evaluator {
    async fn inspect(&self, namespace: &str, template: &str, is_compiled: bool) -> Result<Inspection, Error> {
        if is_compiled {
            self.inspect_compiled(namespace, template).await
        } else {
            Self::inspect(self, namespace, template).await
        }
    }
}
