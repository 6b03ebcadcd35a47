//! Judges the certificates of servers.

use std::sync::Arc;

use tokio_rustls::rustls::{
    AlertDescription as Alert, CertificateError, DigitallySignedStruct, DistinguishedName, Error,
    RootCertStore, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor, verify_server_name,
    },
    crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

/// The authorities that are trusted.
#[derive(Debug)]
pub(super) struct Trusted {
    pub(super) roots: RootCertStore,
    /// Certificates of the user's file. One of an authority may also be that of the server.
    pub(super) own: Vec<CertificateDer<'static>>,
}

/// Decides whether a server is the right one.
#[derive(Debug)]
pub(super) struct Judge {
    /// `None` if any certificate will do.
    pub(super) trusted: Option<Trusted>,
    /// Whether the certificate must be for the server's name.
    pub(super) checks_name: bool,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(Trusted { roots, own }) = &self.trusted else {
            return Ok(ServerCertVerified::assertion());
        };
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let verified = verify_server_cert_signed_by_trust_anchor(
            &certificate,
            roots,
            intermediates,
            now,
            self.algorithms.all,
        );
        match verified {
            Ok(()) => {}
            // It is an authority, and that of no server. The user may trust it nevertheless. Its
            // time has been checked before.
            Err(Error::InvalidCertificate(CertificateError::Other(_)))
                if own.contains(end_entity) => {}
            // Another authority has the name of a trusted one.
            Err(Error::InvalidCertificate(CertificateError::BadSignature)) => {
                return Err(CertificateError::UnknownIssuer.into());
            }
            Err(other) => return Err(other),
        }
        if self.checks_name {
            verify_server_name(&certificate, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    // Whatever is demanded of the certificate, the server must have its key. Otherwise the binding
    // of a password to the certificate would mean nothing.

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        None
    }
}

impl From<Error> for super::TlsError {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidCertificate(wrong) => match wrong {
                CertificateError::UnknownIssuer => Self::Untrusted,
                CertificateError::NotValidForNameContext {
                    expected,
                    presented,
                } => Self::WrongName {
                    name: expected.to_str().into_owned(),
                    valid: presented,
                },
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Self::Expired,
                other => Self::Failed(Arc::new(Error::InvalidCertificate(other))),
            },
            Error::AlertReceived(
                Alert::CertificateRequired
                | Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied,
            ) => Self::Refused(Arc::new(error)),
            other => Self::Failed(Arc::new(other)),
        }
    }
}
