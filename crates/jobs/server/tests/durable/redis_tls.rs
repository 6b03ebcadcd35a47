//! Redis with TLS.

use std::{
    io::{Read, Write},
    net::TcpListener,
    path::Path,
    thread,
    time::Duration,
};

use tourbillon_jobs::{Queue, redis::Redis as Store, store::TlsError};

use crate::{
    certificates::{Authority, assert_tls, tls_error},
    server::{Redis, Server},
    shared::{skip, start},
    support::{Dir, HOUR, PATIENCE, live, node, run, soon, unbounded_channel, works},
};

/// A server with TLS, also for those who have no certificate.
struct Secured {
    server: Redis,
    dir: Dir,
    authority: Authority,
    root: String,
    port: u16,
}

impl Secured {
    /// Starts a server with a certificate for `localhost`. Returns `None` if the test is to be
    /// skipped.
    fn start() -> Option<Self> {
        let (server, dir, authority) = (start::<Redis>()?, Dir::new(), Authority::new());
        let root = authority.write(&dir, "root.crt");
        // The server cannot choose a free port itself.
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        drop(taken);
        let secured = Self {
            server,
            dir,
            authority,
            root,
            port,
        };
        let (certificate, key) = secured
            .authority
            .server(&["localhost"])
            .write(&secured.dir, "server");
        let (certificate, key) = (certificate.display(), key.display());
        let settings = format!(
            "tls-cert-file {certificate} tls-key-file {key} tls-ca-cert-file {} \
             tls-auth-clients no tls-port {port}",
            secured.root
        );
        let answer = secured.set(&settings);
        if answer.contains("Unknown option") {
            skip("redis-server has no TLS");
            return None;
        }
        assert_eq!(answer, "+OK\r\n");
        Some(secured)
    }

    fn set(&self, settings: &str) -> String {
        self.server
            .command(&format!("CONFIG SET {settings}"))
            .unwrap()
    }

    fn url(&self, host: &str, rest: &str) -> String {
        format!("rediss://{host}:{}/0{rest}", self.port)
    }

    /// Returns a URL with all that a client can demand.
    fn full(&self) -> String {
        self.url("localhost", &format!("?ssl_ca_certs={}", self.root))
    }
}

#[test]
fn a_node_runs_jobs_over_tls_and_is_notified() {
    let Some(secured) = Secured::start() else {
        return;
    };
    run(async {
        Store::migrate(&secured.full()).await.unwrap();
        let queue = Queue::new(Store::connect(&secured.full()).await.unwrap());
        works(&queue).await;
        // From here on, the node learns of jobs by messages alone.
        let (node, mut ran) = node(&queue, |node| node.window(HOUR), |_| Ok(()));
        let other = Queue::new(Store::connect(&secured.full()).await.unwrap());
        for number in 0..3 {
            let key = format!("job-{number}");
            let soon = Duration::from_millis(50);
            other.schedule(&*key, soon, "").await.unwrap();
            assert_eq!(ran.recv().await.unwrap().key, key);
        }
        live(&queue, 0).await;
        assert!(node.stop(PATIENCE).await);
    });
}

#[test]
fn a_wrong_server_is_refused() {
    let Some(secured) = Secured::start() else {
        return;
    };
    let dir = Dir::new();
    let other = Authority::new().write(&dir, "other.crt");
    run(async {
        let other = secured.url("localhost", &format!("?ssl_ca_certs={other}"));
        assert_tls!(Store::connect(&other).await, TlsError::Untrusted);
        let machine = secured.url("localhost", "");
        assert_tls!(Store::connect(&machine).await, TlsError::Untrusted);
        let address = secured.full().replace("localhost", "127.0.0.1");
        assert_tls!(Store::connect(&address).await, TlsError::WrongName { .. });
        let missing = secured.url("localhost", "?ssl_ca_certs=/missing.crt");
        let missing = tls_error(Store::connect(&missing).await).to_string();
        assert!(missing.starts_with("/missing.crt: "), "{missing}");
        // Whoever does not want to know gets any server.
        let insecure = secured.url("127.0.0.1", "#insecure");
        works(&Queue::new(Store::connect(&insecure).await.unwrap())).await;
        // Nothing goes on without TLS.
        let port = secured.server.port();
        let plain = format!("rediss://localhost:{port}?ssl_ca_certs={}", secured.root);
        let silent = Store::connect(&plain).await.unwrap_err().to_string();
        assert!(silent.contains("may have none"), "{silent}");
    });
}

#[test]
fn a_client_shows_its_certificate() {
    let Some(secured) = Secured::start() else {
        return;
    };
    let (good, key) = secured
        .authority
        .client("worker")
        .write(&secured.dir, "good");
    let other = Authority::by(&rcgen::PKCS_ECDSA_P256_SHA256, "other");
    let (wrong, wrong_key) = other.client("worker").write(&secured.dir, "other");
    assert_eq!(secured.set("tls-auth-clients yes"), "+OK\r\n");
    run(async {
        let with = |certificate: &Path, key: &Path| {
            let (certificate, key) = (certificate.display(), key.display());
            format!(
                "{}&ssl_certfile={certificate}&ssl_keyfile={key}",
                secured.full()
            )
        };
        let queue = Queue::new(Store::connect(&with(&good, &key)).await.unwrap());
        works(&queue).await;
        assert_tls!(Store::connect(&secured.full()).await, TlsError::Refused(_));
        assert_tls!(
            Store::connect(&with(&wrong, &wrong_key)).await,
            TlsError::Refused(_)
        );
    });
}

#[test]
fn a_handshake_that_never_ends_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let (sender, mut heard) = unbounded_channel();
    thread::spawn(move || {
        let mut client = silent.accept().unwrap().0;
        let mut all = Vec::new();
        // It may end by a reset.
        let _ = client.read_to_end(&mut all);
        let _ = client.write_all(b"+OK\r\n");
        sender.send(all).unwrap();
    });
    run(async {
        let url = format!("rediss://:secret@127.0.0.1:{port}#insecure");
        let made = soon("for the end of a connect", Store::connect(&url)).await;
        let error = made.unwrap_err();
        assert!(error.to_string().contains("may have none"), "{error}");
        let heard = heard.recv().await.unwrap();
        assert_eq!(heard[0], 22);
        assert!(!heard.windows(6).any(|part| part == b"secret"));
    });
}
