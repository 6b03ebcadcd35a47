use sqlx::{PgPool, SqlitePool};
use tokio::task::JoinSet;
use tourbillon_matrix::{Addresses, Case, Program};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("sqlx", "SQLite: a pool, a transaction", |_| sqlite()),
        Case::new(
            "sqlx",
            "PostgreSQL: a pool, four tasks, a transaction",
            postgres,
        )
        .needs(Program::Postgres),
    ]
}

async fn sqlite() {
    let pool = SqlitePool::connect("sqlite::memory:").await.unwrap();
    sqlx::query("CREATE TABLE numbers (number INTEGER)")
        .execute(&pool)
        .await
        .unwrap();
    let mut transaction = pool.begin().await.unwrap();
    for number in 1..=3_i64 {
        let insert = sqlx::query("INSERT INTO numbers VALUES (?)").bind(number);
        insert.execute(&mut *transaction).await.unwrap();
    }
    transaction.commit().await.unwrap();
    let sum: i64 = sqlx::query_scalar("SELECT SUM(number) FROM numbers")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(sum, 6);
    pool.close().await;
}

async fn postgres(addresses: Addresses) {
    let pool = connect(addresses).await;
    let tasks: JoinSet<i64> = (0..4_i64)
        .map(|number| {
            let pool = pool.clone();
            async move { double(&pool, number).await }
        })
        .collect();
    assert_eq!(tasks.join_all().await.iter().sum::<i64>(), 12);
    let mut transaction = pool.begin().await.unwrap();
    sqlx::query("CREATE TABLE undone ()")
        .execute(&mut *transaction)
        .await
        .unwrap();
    transaction.rollback().await.unwrap();
    let missing = sqlx::query("SELECT * FROM undone")
        .execute(&pool)
        .await
        .unwrap_err();
    assert!(missing.as_database_error().is_some());
    pool.close().await;
}

/// Connects by tokio.
pub async fn connect(addresses: Addresses) -> PgPool {
    let addr = addresses.of(Program::Postgres);
    PgPool::connect(&format!("postgres://postgres@{addr}/postgres"))
        .await
        .unwrap()
}

/// Returns two times the number, as the database has it.
pub async fn double(pool: &PgPool, number: i64) -> i64 {
    sqlx::query_scalar("SELECT $1 * 2")
        .bind(number)
        .fetch_one(pool)
        .await
        .unwrap()
}
