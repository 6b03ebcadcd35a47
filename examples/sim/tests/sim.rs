#![cfg(tourbillon_sim)]

use std::sync::Arc;

use tickets::{Shop, buy, serve};
use tourbillon_sim::{Network, Simulation, assert_sometimes};

/// Two tasks want the last ticket.
async fn two_want_one(sell: impl Fn() -> bool + Clone + Send + 'static) {
    let tasks = [(); 2].map(|()| {
        let sell = sell.clone();
        tourbillon::spawn(async move { sell() })
    });
    let mut sold = 0;
    for task in tasks {
        sold += u32::from(task.await.unwrap());
    }
    assert_eq!(sold, 1, "one ticket was there");
}

#[tourbillon_sim::test(seeds = 10_000)]
#[should_panic(expected = "one ticket was there")]
async fn the_last_ticket_is_sold_twice() {
    let shop = Arc::new(Shop::new(1));
    two_want_one(move || shop.sell_twice()).await;
}

#[tourbillon_sim::test(seeds = 300)]
async fn the_last_ticket_is_sold_once() {
    let shop = Arc::new(Shop::new(1));
    two_want_one(move || shop.sell()).await;
}

/// A client orders three tickets over a network that makes some of what is sent late.
fn a_client_orders_three(sim: &mut Simulation, sell: fn(&Shop, u64) -> bool) {
    let mut network = Network::new();
    network.loss(0.05);
    sim.network(network);
    let shop = Arc::new(Shop::new(10));
    let of_server = shop.clone();
    sim.host("shop", move || {
        let shop = of_server.clone();
        serve(move |order| sell(&shop, order))
    });
    sim.client("client", move || {
        let shop = shop.clone();
        async move {
            for order in 0..3 {
                assert!(buy(order).await);
            }
            assert_sometimes!(tourbillon_sim::elapsed().as_millis() > 100, "it asks again");
            assert_eq!(shop.left(), 7, "three tickets were ordered");
        }
    });
}

#[tourbillon_sim::test(seeds = 10_000)]
#[should_panic(expected = "three tickets were ordered")]
fn a_late_answer_costs_a_ticket(sim: &mut Simulation) {
    a_client_orders_three(sim, |shop, _| shop.sell());
}

#[tourbillon_sim::test(seeds = 200)]
fn an_order_costs_one_ticket(sim: &mut Simulation) {
    a_client_orders_three(sim, Shop::sell_for);
}
