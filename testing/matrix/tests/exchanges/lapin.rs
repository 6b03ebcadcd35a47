use futures::StreamExt;
use lapin::{
    BasicProperties, Connection, ConnectionProperties,
    options::{BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, QueueDeclareOptions},
    types::FieldTable,
};
use tourbillon_matrix::{Addresses, Case, Program};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("lapin", "RabbitMQ: a message through a queue", exchange)
            .needs(Program::RabbitMq),
    ]
}

async fn exchange(addresses: Addresses) {
    let uri = format!("amqp://{}/%2f", addresses.of(Program::RabbitMq));
    let connection = Connection::connect(&uri, ConnectionProperties::default())
        .await
        .unwrap();
    let channel = connection.create_channel().await.unwrap();
    let options = QueueDeclareOptions {
        exclusive: true,
        ..Default::default()
    };
    let queue = channel
        .queue_declare("".into(), options, FieldTable::default())
        .await
        .unwrap();
    let queue = queue.name().clone();
    let published = channel.basic_publish(
        "".into(),
        queue.clone(),
        BasicPublishOptions::default(),
        b"hello",
        BasicProperties::default(),
    );
    published.await.unwrap().await.unwrap();
    let options = BasicConsumeOptions::default();
    let consumer = channel.basic_consume(queue, "matrix".into(), options, FieldTable::default());
    let delivery = consumer.await.unwrap().next().await.unwrap().unwrap();
    assert_eq!(delivery.data, b"hello");
    delivery.ack(BasicAckOptions::default()).await.unwrap();
    connection.close(200, "done".into()).await.unwrap();
}
