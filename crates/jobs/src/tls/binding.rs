//! Binds the proof of a password to the server's certificate, so that nobody else can use it. There
//! is no binding for RSA-PSS and Ed25519.

use ring::digest::{self, Algorithm, SHA256, SHA384, SHA512};

/// Algorithms that sign certificates, by the contents of their object identifiers, and what hashes
/// a certificate then: RFC 5929 takes SHA-256 in place of MD5 and SHA-1.
const SIGNATURES: [(&[u8], &Algorithm); 9] = [
    // md5WithRSAEncryption, sha1WithRSAEncryption
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4], &SHA256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5], &SHA256),
    // sha256, sha384 and sha512WithRSAEncryption
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11], &SHA256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12], &SHA384),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13], &SHA512),
    // ecdsa-with-SHA1, -SHA256, -SHA384 and -SHA512
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1], &SHA256),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2], &SHA256),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3], &SHA384),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4], &SHA512),
];

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 6;

/// Returns the binding to a certificate (`tls-server-end-point`). Returns `None` if it is not
/// defined for what has signed the certificate.
pub(crate) fn binding(certificate: &[u8]) -> Option<Vec<u8>> {
    let (all, _) = value(certificate, SEQUENCE)?;
    let (_, rest) = value(all, SEQUENCE)?;
    let (signature, _) = value(rest, SEQUENCE)?;
    let (identifier, _) = value(signature, OBJECT_IDENTIFIER)?;
    let (_, hash) = SIGNATURES.iter().find(|(known, _)| *known == identifier)?;
    Some(digest::digest(hash, certificate).as_ref().to_vec())
}

/// Divides DER after its first value, which has this tag. Returns what is in it, and the rest.
fn value(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = der.split_first_chunk()?;
    if found != tag {
        return None;
    }
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let add = |sum, byte: &u8| sum << 8 | usize::from(*byte);
            (bytes.iter().fold(0, add), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a certificate that has only the parts which count here.
    fn certificate(identifier: &[u8], content: usize) -> Vec<u8> {
        let wrap = |tag, inner: &[u8]| {
            let length = inner.len();
            let mut all = match length {
                0..128 => vec![tag, length as u8],
                128..256 => vec![tag, 0x81, length as u8],
                _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
            };
            all.extend(inner);
            all
        };
        let content = wrap(SEQUENCE, &vec![0; content]);
        let signature = wrap(SEQUENCE, &wrap(OBJECT_IDENTIFIER, identifier));
        wrap(SEQUENCE, &[content, signature, vec![3, 1, 0]].concat())
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        for (identifier, hash) in SIGNATURES {
            for content in [1, 130, 700] {
                let certificate = certificate(identifier, content);
                let expected = digest::digest(hash, &certificate);
                assert_eq!(binding(&certificate).unwrap(), expected.as_ref());
            }
        }
    }

    #[test]
    fn what_is_no_certificate_or_has_another_signature_has_no_binding() {
        let ed25519 = certificate(&[0x2b, 0x65, 0x70], 700);
        assert_eq!(binding(&ed25519), None);
        let whole = certificate(SIGNATURES[2].0, 700);
        for length in 0..whole.len() {
            assert_eq!(binding(&whole[..length]), None, "{length}");
        }
        assert_eq!(binding(&[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
