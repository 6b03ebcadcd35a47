//! Authorities and certificates.

use std::{fs, path::PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SignatureAlgorithm,
    date_time_ymd,
};
use tourbillon_jobs::store::{StoreError, TlsError};

use crate::support::Dir;

/// A certificate and its key, as PEM.
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Pair {
    /// Makes a certificate for `localhost` that has signed itself.
    pub fn own(is_authority: bool, is_expired: bool) -> Self {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        if is_expired {
            expire(&mut params);
        }
        let key = KeyPair::generate().unwrap();
        Self {
            certificate: params.self_signed(&key).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    /// Writes the two as files. Returns their paths.
    pub fn write(&self, dir: &Dir, name: &str) -> (PathBuf, PathBuf) {
        let (certificate, key) = (
            dir.join(&format!("{name}.crt")),
            dir.join(&format!("{name}.key")),
        );
        fs::write(&certificate, &self.certificate).unwrap();
        fs::write(&key, &self.key).unwrap();
        (certificate, key)
    }
}

/// Lets the time of a certificate be over.
fn expire(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
}

/// An authority that signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub certificate: String,
}

impl Authority {
    pub fn new() -> Self {
        Self::by(&rcgen::PKCS_ECDSA_P256_SHA256, "authority")
    }

    /// Makes an authority that signs by this algorithm, and has this name.
    pub fn by(algorithm: &'static SignatureAlgorithm, name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    /// Makes the certificate of a server of these names and addresses.
    pub fn server(&self, names: &[&str]) -> Pair {
        self.sign(names, |_| {})
    }

    /// Makes the certificate of a user.
    pub fn client(&self, user: &str) -> Pair {
        self.sign(&[], |params| {
            params.distinguished_name.push(DnType::CommonName, user);
        })
    }

    /// Makes the certificate of a server, whose time is over.
    pub fn expired(&self, names: &[&str]) -> Pair {
        self.sign(names, expire)
    }

    fn sign(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = Default::default();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Pair {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    /// Writes the authority's certificate as a file. Returns its path.
    pub fn write(&self, dir: &Dir, name: &str) -> String {
        let path = dir.join(name);
        fs::write(&path, &self.certificate).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// Returns the error of TLS of a connect, which must fail.
#[track_caller]
pub fn tls_error<S>(made: Result<S, StoreError>) -> TlsError {
    match made {
        Ok(_) => panic!("it has connected"),
        Err(StoreError::Tls(error)) => error,
        Err(other) => panic!("{other:?}"),
    }
}

/// Fails unless an error is of this kind.
macro_rules! assert_tls {
    ($made:expr, $pattern:pat) => {
        let error = $crate::certificates::tls_error($made);
        assert!(matches!(error, $pattern), "{error:?}");
    };
}
pub(crate) use assert_tls;
