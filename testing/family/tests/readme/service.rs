use axum::{Router, routing::get};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let page = tourbillon_inspect::serve("127.0.0.1:6001")?;
    println!("open http://{}/", page.local_addr());
    let router = Router::new().route("/", get(|| async { "hello" }));
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    tourbillon_axum::serve(tourbillon::net::TcpListener::from(listener), router).await
}
