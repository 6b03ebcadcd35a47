use std::time::Duration;

use rumqttc::{AsyncClient, Event, MqttOptions, Packet, QoS};
use tourbillon_matrix::{Addresses, Case, Program};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "rumqttc",
            "Mosquitto: a message with QoS 1 to its own topic",
            exchange,
        )
        .needs(Program::Mosquitto),
    ]
}

async fn exchange(addresses: Addresses) {
    let addr = addresses.of(Program::Mosquitto);
    let mut options = MqttOptions::new("matrix", addr.ip().to_string(), addr.port());
    options.set_keep_alive(Duration::from_secs(30));
    let (client, mut events) = AsyncClient::new(options, 8);
    client.subscribe("matrix", QoS::AtLeastOnce).await.unwrap();
    loop {
        match events.poll().await.unwrap() {
            Event::Incoming(Packet::SubAck(_)) => {
                client
                    .publish("matrix", QoS::AtLeastOnce, false, "hello")
                    .await
                    .unwrap();
            }
            Event::Incoming(Packet::Publish(message)) => {
                assert_eq!(message.payload, "hello");
                break;
            }
            _ => {}
        }
    }
}
