use opentelemetry::trace::{Span, Tracer, TracerProvider};
use opentelemetry_sdk::{
    runtime,
    trace::{
        BatchSpanProcessor, InMemorySpanExporter, SdkTracerProvider,
        span_processor_with_async_runtime::BatchSpanProcessor as AsyncProcessor,
    },
};
use tokio::task::spawn_blocking;
use tourbillon_matrix::Case;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "opentelemetry_sdk",
            "a batch of spans, `BatchSpanProcessor`",
            |_| thread(),
        ),
        Case::new(
            "opentelemetry_sdk",
            "a batch of spans, `BatchSpanProcessor` with `runtime::Tokio`",
            |_| by_tokio(),
        ),
    ]
}

async fn thread() {
    let exporter = InMemorySpanExporter::default();
    let processor = BatchSpanProcessor::builder(exporter.clone()).build();
    let provider = SdkTracerProvider::builder()
        .with_span_processor(processor)
        .build();
    export(provider, exporter).await;
}

async fn by_tokio() {
    let exporter = InMemorySpanExporter::default();
    let processor = AsyncProcessor::builder(exporter.clone(), runtime::Tokio).build();
    let provider = SdkTracerProvider::builder()
        .with_span_processor(processor)
        .build();
    export(provider, exporter).await;
}

async fn export(provider: SdkTracerProvider, exporter: InMemorySpanExporter) {
    let tracer = provider.tracer("matrix");
    for _ in 0..3 {
        tracer.start("span").end();
    }
    // A flush blocks its thread.
    spawn_blocking(move || {
        provider.force_flush().unwrap();
        assert_eq!(exporter.get_finished_spans().unwrap().len(), 3);
        provider.shutdown().unwrap();
    })
    .await
    .unwrap();
}
