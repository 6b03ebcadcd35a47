//! A shop for tickets: a server, and a client that asks again.

use std::{
    collections::HashMap,
    io,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// The tickets that are left, and the orders that have come.
pub struct Shop {
    left: AtomicU64,
    orders: Mutex<HashMap<u64, bool>>,
}

impl Shop {
    /// Creates a shop with so many tickets.
    pub fn new(tickets: u64) -> Self {
        Self {
            left: AtomicU64::new(tickets),
            orders: Mutex::default(),
        }
    }

    /// Returns how many tickets are left.
    pub fn left(&self) -> u64 {
        self.left.load(SeqCst)
    }

    /// Sells a ticket, if one is left. Two threads can sell the same one.
    pub fn sell_twice(&self) -> bool {
        let left = self.left.load(SeqCst);
        if left > 0 {
            self.left.store(left - 1, SeqCst);
        }
        left > 0
    }

    /// Sells a ticket, if one is left.
    pub fn sell(&self) -> bool {
        let one_less = |left: u64| left.checked_sub(1);
        self.left.fetch_update(SeqCst, SeqCst, one_less).is_ok()
    }

    /// Sells a ticket for an order, if one is left. An order that comes again gets the same answer.
    pub fn sell_for(&self, order: u64) -> bool {
        let mut orders = self.orders.lock().unwrap();
        *orders.entry(order).or_insert_with(|| self.sell())
    }
}

/// Answers each order, a number of 8 bytes, by one byte: 1 if `sell` has sold a ticket for it.
pub async fn serve(sell: impl Fn(u64) -> bool + Clone + Send + 'static) -> io::Result<()> {
    let listener = TcpListener::bind("0.0.0.0:80").await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let sell = sell.clone();
        tourbillon::spawn(async move {
            let mut order = [0; 8];
            while stream.read_exact(&mut order).await.is_ok() {
                let answer = [sell(u64::from_le_bytes(order)).into()];
                if stream.write_all(&answer).await.is_err() {
                    break;
                }
            }
        });
    }
}

/// Orders a ticket from the host `shop`. Asks again if there is no answer within 100 ms.
pub async fn buy(order: u64) -> bool {
    let attempt = || async {
        let mut stream = TcpStream::connect("shop:80").await?;
        stream.write_all(&order.to_le_bytes()).await?;
        let mut answer = [0];
        stream.read_exact(&mut answer).await?;
        io::Result::Ok(answer == [1])
    };
    loop {
        if let Ok(Ok(answer)) = timeout(Duration::from_millis(100), attempt()).await {
            return answer;
        }
    }
}
