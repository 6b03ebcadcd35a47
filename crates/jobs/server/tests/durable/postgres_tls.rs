//! PostgreSQL with TLS.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    path::Path,
    process::Command,
    sync::Arc,
    thread,
    time::Duration,
};

use tokio_rustls::rustls::{
    self, ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tourbillon_jobs::{
    Queue,
    postgres::Postgres as Store,
    store::{StoreError, TlsError},
};

use crate::{
    certificates::{Authority, Pair, assert_tls, tls_error},
    postgres::client,
    postgres_secured::{ONLY_TLS, Secured},
    server::{Postgres, Server},
    shared::start,
    support::{Dir, HOUR, PATIENCE, live, node, run, works},
};

async fn error(config: &str) -> String {
    match Store::connect(config).await {
        Ok(_) => panic!("{config} leads to a server"),
        Err(error) => error.to_string(),
    }
}

/// Makes the tables.
async fn make(config: &str) -> Queue<Store> {
    Store::migrate(config).await.unwrap();
    Queue::new(Store::connect(config).await.unwrap())
}

#[test]
fn a_node_runs_jobs_over_tls_and_is_notified() {
    let Some(secured) = Secured::start(ONLY_TLS) else {
        return;
    };
    let made = Command::new(env!("CARGO_BIN_EXE_delayed_jobs"))
        .args(["--migrate", "--postgres", &secured.full()])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    run(async {
        let queue = make(&secured.full()).await;
        works(&queue).await;
        // From here on, the node learns of jobs by notifications alone.
        let (node, mut ran) = node(&queue, |node| node.window(HOUR), |_| Ok(()));
        let other = Queue::new(Store::connect(&secured.full()).await.unwrap());
        for number in 0..3 {
            let key = format!("job-{number}");
            other
                .schedule(&*key, Duration::from_millis(50), "")
                .await
                .unwrap();
            assert_eq!(ran.recv().await.unwrap().key, key);
        }
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn a_wrong_certificate_is_refused() {
    let Some(mut secured) = Secured::start(ONLY_TLS) else {
        return;
    };
    let dir = Dir::new();
    let other = Authority::new().write(&dir, "other.crt");
    run(async {
        make(&secured.full()).await;
        let by = |host: &str, root: &str, mode: &str| {
            secured.config(host, &format!("sslmode={mode} sslrootcert={root}"))
        };
        // As in libpq, `require` with a file of authorities checks the certificate.
        for mode in ["require", "verify-ca", "verify-full"] {
            let made = Store::connect(&by("localhost", &other, mode)).await;
            assert_tls!(made, TlsError::Untrusted);
        }
        let machine = secured.config("localhost", "sslmode=verify-full");
        assert_tls!(Store::connect(&machine).await, TlsError::Untrusted);

        // The certificate is for `localhost`, and not for this address.
        let full = by("127.0.0.1", &secured.root, "verify-full");
        let wrong = tls_error(Store::connect(&full).await);
        let text = wrong.to_string();
        assert!(text.contains("not for `127.0.0.1`, but for "), "{text}");
        assert!(text.contains("localhost"), "{text}");
        Store::connect(&by("127.0.0.1", &secured.root, "verify-ca"))
            .await
            .unwrap();
        Store::connect(&secured.config("127.0.0.1", "sslmode=require"))
            .await
            .unwrap();
        // The name counts, wherever it leads.
        let address = format!("{} hostaddr=127.0.0.1", secured.full());
        Store::connect(&address).await.unwrap();

        let missing = by("localhost", "/missing.crt", "verify-full");
        let missing = tls_error(Store::connect(&missing).await);
        assert!(
            missing
                .to_string()
                .starts_with("/missing.crt: No such file"),
            "{missing}"
        );
        let empty = dir.join("empty.crt");
        fs::write(&empty, "").unwrap();
        let empty = by("localhost", empty.to_str().unwrap(), "verify-ca");
        let empty = tls_error(Store::connect(&empty).await);
        assert!(empty.to_string().contains("no certificate"), "{empty}");
        // A server's certificate that somebody else has signed is no authority.
        let own = secured.server.data().join("server.crt");
        let own = by("localhost", own.to_str().unwrap(), "verify-full");
        assert_tls!(Store::connect(&own).await, TlsError::Untrusted);
    });
    let expired = secured.authority.expired(&["localhost"]);
    secured.set_certificate(&expired);
    run(async {
        assert_tls!(Store::connect(&secured.full()).await, TlsError::Expired);
    });
    let nameless = secured.authority.client("localhost");
    secured.set_certificate(&nameless);
    run(async {
        let wrong = tls_error(Store::connect(&secured.full()).await).to_string();
        assert!(wrong.contains("it has no names"), "{wrong}");
    });
    let address = secured.authority.server(&["127.0.0.1"]);
    secured.set_certificate(&address);
    run(async {
        let config = secured.full().replace("host=localhost", "host=127.0.0.1");
        Store::connect(&config).await.unwrap();
        assert_tls!(
            Store::connect(&secured.full()).await,
            TlsError::WrongName { .. }
        );
    });
    // A certificate that has signed itself is trusted if the user names it.
    for is_authority in [false, true] {
        let own = Pair::own(is_authority, false);
        secured.set_certificate(&own);
        fs::write(&secured.root, &own.certificate).unwrap();
        run(async {
            Store::connect(&secured.full()).await.unwrap();
            let wrong = secured.full().replace("host=localhost", "host=127.0.0.1");
            assert_tls!(Store::connect(&wrong).await, TlsError::WrongName { .. });
        });
        // But not for ever.
        let expired = Pair::own(is_authority, true);
        secured.set_certificate(&expired);
        fs::write(&secured.root, &expired.certificate).unwrap();
        run(async {
            assert_tls!(Store::connect(&secured.full()).await, TlsError::Expired);
        });
    }
}

#[test]
fn the_server_and_the_mode_decide_whether_there_is_tls() {
    let Some(server) = start::<Postgres>() else {
        return;
    };
    let plain = |options: &str| format!("{} {options}", Postgres::config(server.port()));
    run(async {
        make(&plain("")).await;
        for mode in ["require", "verify-full"] {
            let made = Store::connect(&plain(&format!("sslmode={mode}"))).await;
            assert_tls!(made, TlsError::NotOffered);
        }
        let direct = plain("sslmode=require sslnegotiation=direct");
        assert_tls!(Store::connect(&direct).await, TlsError::Failed(_));
        for mode in ["disable", "allow", "prefer"] {
            let config = plain(&format!("sslmode={mode}"));
            works(&Queue::new(Store::connect(&config).await.unwrap())).await;
        }
    });
    drop(server);

    // A server that has TLS, one that wants it, and one that wants none.
    let mut secured = Secured::start("host all all 127.0.0.1/32 trust").unwrap();
    run(async {
        make(&secured.config("localhost", "")).await;
        let other = client(&secured.server).await;
        for (mode, is_secure) in [("disable", false), ("allow", false), ("prefer", true)] {
            let config = secured.config("localhost", &format!("sslmode={mode}"));
            let queue = Queue::new(Store::connect(&config).await.unwrap());
            works(&queue).await;
            let look = "SELECT bool_and(ssl), bool_or(ssl)
                FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
            let found = other.query_one(look, &[]).await.unwrap();
            assert_eq!(
                (found.get(0), found.get(1)),
                (is_secure, is_secure),
                "{mode}"
            );
            drop(queue);
            let count = "SELECT count(*) FROM pg_stat_activity
                WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
            while other.query_one(count, &[]).await.unwrap().get::<_, i64>(0) > 0 {}
        }
    });
    secured.server.write("pg_hba.conf", ONLY_TLS);
    secured.server.crash().unwrap();
    run(async {
        let without = error(&secured.config("localhost", "sslmode=disable")).await;
        assert!(without.contains("no encryption"), "{without}");
        for mode in ["allow", "prefer", "require"] {
            let config = secured.config("localhost", &format!("sslmode={mode}"));
            works(&Queue::new(Store::connect(&config).await.unwrap())).await;
        }
    });
    secured
        .server
        .write("pg_hba.conf", "hostnossl all all 127.0.0.1/32 trust");
    secured.server.crash().unwrap();
    run(async {
        for mode in ["disable", "allow", "prefer"] {
            let config = secured.config("localhost", &format!("sslmode={mode}"));
            works(&Queue::new(Store::connect(&config).await.unwrap())).await;
        }
        // Nothing goes on without.
        let with = error(&secured.full()).await;
        assert!(with.contains("SSL encryption"), "{with}");
    });
}

#[test]
fn a_client_shows_its_certificate() {
    let rules = "hostssl all all 127.0.0.1/32 cert";
    let Some(secured) = Secured::start(rules) else {
        return;
    };
    let (good, key) = secured
        .authority
        .client("postgres")
        .write(&secured.dir, "good");
    let other = Authority::by(&rcgen::PKCS_ECDSA_P256_SHA256, "other");
    let (other, other_key) = other.client("postgres").write(&secured.dir, "other");
    let with = |certificate: &Path, key: &Path| {
        let (certificate, key) = (certificate.display(), key.display());
        format!("{} sslcert={certificate} sslkey={key}", secured.full())
    };
    run(async {
        works(&make(&with(&good, &key)).await).await;
        let none = error(&secured.full()).await;
        assert!(none.contains("valid client certificate"), "{none}");
        let refused = Store::connect(&with(&other, &other_key)).await;
        assert_tls!(refused, TlsError::Refused(_));
        let mixed = tls_error(Store::connect(&with(&good, &other_key)).await).to_string();
        assert!(
            mixed.contains("is not the key of the certificate in"),
            "{mixed}"
        );
        let no_key = tls_error(Store::connect(&with(&good, &good)).await).to_string();
        assert!(no_key.contains("no private key"), "{no_key}");
    });
}

#[test]
fn a_key_that_cannot_be_read_is_not_in_the_error() {
    let (dir, pair) = (Dir::new(), Authority::new().client("postgres"));
    let (certificate, key) = pair.write(&dir, "broken");
    let inner: Vec<_> = pair
        .key
        .lines()
        .filter(|line| !line.starts_with('-'))
        .collect();
    let inner = inner.concat();
    let (begin, end) = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----");
    let first = &inner[..16];
    let decimals: Vec<_> = first.bytes().map(|byte| byte.to_string()).collect();
    run(async {
        for broken in [
            pair.key.replace('\n', ""),
            pair.key.replace('\n', " "),
            format!("{begin}{inner}\n{end}\n"),
            format!("{begin}\n{inner}\n"),
            format!("{begin}\n{inner}{end}\n"),
            format!("{begin}\n{inner}!\n{end}\n"),
        ] {
            fs::write(&key, &broken).unwrap();
            // The key may also stand where a certificate belongs.
            for certificate in [&certificate, &key] {
                let config = format!(
                    "host=127.0.0.1 port=1 user=u sslmode=require sslcert={} sslkey={}",
                    certificate.display(),
                    key.display()
                );
                let error = tls_error(Store::connect(&config).await);
                for text in [error.to_string(), format!("{error:?}")] {
                    assert!(text.contains("broken.key"), "{text}");
                    assert!(!text.contains(first), "{text}");
                    assert!(!text.contains(&decimals.join(", ")), "{text}");
                }
            }
        }
    });
}

#[test]
fn passwords_are_bound_to_the_certificate() {
    for algorithm in [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
    ] {
        let rules = "host all postgres 127.0.0.1/32 trust
            host all worker 127.0.0.1/32 scram-sha-256";
        let authority = Authority::by(algorithm, "authority");
        let Some(secured) = Secured::start_by(authority, &["localhost"], rules) else {
            return;
        };
        run(async {
            make(&secured.full()).await;
            let role = "CREATE ROLE worker LOGIN SUPERUSER PASSWORD 'secret'";
            let other = client(&secured.server).await;
            other.batch_execute(role).await.unwrap();
            let full = secured.full().replace("user=postgres", "user=worker");
            let binds = format!("{full} password=secret channel_binding=require");
            works(&Queue::new(Store::connect(&binds).await.unwrap())).await;
            let wrong = error(&binds.replace("=secret", "=wrong")).await;
            assert!(wrong.contains("password authentication failed"), "{wrong}");
            let plain = binds.replace("sslmode=verify-full", "sslmode=disable");
            let plain = error(&plain).await;
            assert!(plain.contains("channel binding"), "{plain}");
        });
    }
}

#[test]
fn files_that_are_replaced_count_from_the_next_connect() {
    let Some(mut secured) = Secured::start(ONLY_TLS) else {
        return;
    };
    run(async {
        let queue = make(&secured.full()).await;
        works(&queue).await;
        let next = Authority::new();
        let certificate = next.server(&["localhost"]);
        fs::write(&secured.root, &next.certificate).unwrap();
        tourbillon::task::block_in_place(|| secured.set_certificate(&certificate));
        while queue.count().await.is_err() {}
        works(&queue).await;
        // The connections of a store do not outlive its trust.
        fs::write(&secured.root, &Authority::new().certificate).unwrap();
        tourbillon::task::block_in_place(|| secured.server.crash().unwrap());
        loop {
            if let Err(tourbillon_jobs::QueueError::Store(StoreError::Tls(error))) =
                queue.count().await
            {
                assert!(matches!(error, TlsError::Untrusted), "{error}");
                break;
            }
        }
    });
}

#[test]
fn a_socket_of_the_machine_needs_no_tls() {
    let Some(mut server) = start::<Postgres>() else {
        return;
    };
    // The server can write there.
    server.settings.push("unix_socket_directories=.".into());
    server.crash().unwrap();
    let dir = server.data();
    run(async {
        let port = server.port();
        let config = format!(
            "host={} port={port} user=postgres dbname=postgres",
            dir.display()
        );
        works(&make(&format!("{config} sslmode=require")).await).await;
    });
}

/// Answers one client with these bytes. Returns its port, and what the client sends until it closes
/// the connection.
fn fake(answer: &'static [u8]) -> (u16, thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let sent = thread::spawn(move || {
        let mut client = listener.accept().unwrap().0;
        let mut ask = [0; 8];
        client.read_exact(&mut ask).unwrap();
        client.write_all(answer).unwrap();
        let mut rest = Vec::new();
        // It may end by a reset.
        let _ = client.read_to_end(&mut rest);
        [&ask[..], &rest].concat()
    });
    (port, sent)
}

#[test]
fn nothing_is_sent_to_a_server_that_refuses_tls() {
    let (port, sent) = fake(b"N");
    let config = format!("host=127.0.0.1 port={port} user=u password=p sslmode=require");
    run(async {
        assert_tls!(Store::connect(&config).await, TlsError::NotOffered);
    });
    assert_eq!(sent.join().unwrap(), [0, 0, 0, 8, 4, 210, 22, 47]);
}

#[test]
fn a_server_that_answers_neither_yes_nor_no_is_not_heard() {
    let (port, sent) = fake(b"E\0\0\0\x10Mcall 555-0100\0\0");
    let config = format!("host=127.0.0.1 port={port} user=u password=p sslmode=require");
    run(async {
        let error = tls_error(Store::connect(&config).await);
        assert!(matches!(error, TlsError::Failed(_)), "{error:?}");
        let told = error.to_string();
        assert!(told.contains("neither yes nor no"), "{told}");
        assert!(!told.contains("555"), "{told}");
    });
    assert_eq!(sent.join().unwrap(), [0, 0, 0, 8, 4, 210, 22, 47]);
}

/// Encrypts the connection of one client at once, with these protocols to choose from. Returns its
/// port, and what the client sends until it closes the connection.
fn encrypting(protocols: &[&[u8]]) -> (u16, thread::JoinHandle<Vec<u8>>) {
    let pair = Pair::own(false, false);
    let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|one| one.to_vec()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let sent = thread::spawn(move || {
        let client = listener.accept().unwrap().0;
        let server = ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = StreamOwned::new(server, client);
        // The client waits for an answer to what it sends first.
        let mut sent = vec![0; 1024];
        let count = stream.read(&mut sent).unwrap_or(0);
        sent.truncate(count);
        sent
    });
    (port, sent)
}

#[test]
fn a_direct_connection_needs_a_server_that_says_it_is_postgresql() {
    let to = |port| {
        let direct = "sslmode=require sslnegotiation=direct";
        format!("host=127.0.0.1 port={port} user=u {direct}")
    };
    let (port, sent) = encrypting(&[]);
    run(async {
        let error = tls_error(Store::connect(&to(port)).await).to_string();
        assert!(error.contains("sslnegotiation"), "{error}");
    });
    assert_eq!(sent.join().unwrap(), b"");
    let (port, sent) = encrypting(&[b"h2", b"postgresql"]);
    run(async {
        assert!(Store::connect(&to(port)).await.is_err());
    });
    let sent = sent.join().unwrap();
    assert!(sent.windows(6).any(|part| part == b"user\0u"), "{sent:?}");
}

#[test]
fn what_a_server_says_before_the_encryption_is_not_heard() {
    // It would let the client in, if this counted.
    let (port, sent) = fake(b"SR\0\0\0\x08\0\0\0\0Z\0\0\0\x05I");
    let config = format!("host=127.0.0.1 port={port} user=u password=p sslmode=require");
    run(async {
        assert_tls!(Store::connect(&config).await, TlsError::Failed(_));
    });
    let sent = sent.join().unwrap();
    assert!(!sent.windows(6).any(|part| part == b"user\0u"));
}

#[test]
fn a_handshake_that_never_ends_is_given_up() {
    let (port, sent) = fake(b"S");
    let config = format!("host=127.0.0.1 port={port} user=u sslmode=require connect_timeout=1");
    run(async {
        let told = error(&config).await;
        assert!(told.contains("does not answer"), "{told}");
    });
    // The greeting of TLS has arrived, and nothing else.
    assert_eq!(sent.join().unwrap()[8], 22);
}
