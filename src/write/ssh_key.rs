//! The key pair of one MPIJob: made only when its Secret is created, never read back.

use std::fmt;

use p521::SecretKey;
use p521::elliptic_curve::zeroize::Zeroizing;
use p521::pkcs8::{AssociatedOid, LineEnding};
use rand_core::RngCore;

/// A key pair. Its `Debug` output hides the private half, and dropping it wipes that half.
pub struct SshKeyPair {
    /// PEM block `EC PRIVATE KEY` (SEC1), not encrypted: sshd of the usual images takes the same
    /// file as its host key. Ends in a newline.
    pub private_pem: Zeroizing<String>,
    /// One line `ecdsa-sha2-nistp521 <base64>` without comment. Ends in a newline.
    pub public_line: String,
}

impl fmt::Debug for SshKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SshKeyPair")
            .field("public_line", &self.public_line)
            .finish_non_exhaustive()
    }
}

/// No key pair could be made.
#[derive(Debug, thiserror::Error)]
pub enum SshKeyError {
    /// The system has no random numbers.
    #[error("no random numbers for a key: {0}")]
    Random(rand_core::Error),
    /// The private half does not encode.
    #[error("cannot encode the private key: {0}")]
    Private(String),
    /// The public half does not encode.
    #[error("cannot encode the public key: {0}")]
    Public(ssh_key::Error),
}

impl SshKeyError {
    /// A short word for metrics and events.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Random(_) => "NoRandomNumbers",
            Self::Private(_) | Self::Public(_) => "KeyEncoding",
        }
    }
}

/// Bytes of a P-521 scalar; the highest one holds a single bit.
const SCALAR_BYTES: usize = 66;

/// Make a new ECDSA P-521 pair, about 1 ms of CPU.
///
/// # Errors
///
/// [`SshKeyError::Random`] if the system has no random numbers; the others do not occur in
/// practice.
pub fn generate() -> Result<SshKeyPair, SshKeyError> {
    let secret = random_secret()?;
    let public = secret.public_key();
    let point = p521::EncodedPoint::from(public);
    Ok(SshKeyPair {
        private_pem: private_pem(&secret, &point)?,
        public_line: public_line(&point)?,
    })
}

/// `SecretKey::random` panics where the system has no random numbers, so draw the bytes here.
fn random_secret() -> Result<SecretKey, SshKeyError> {
    let mut bytes = Zeroizing::new([0_u8; SCALAR_BYTES]);
    loop {
        rand_core::OsRng
            .try_fill_bytes(&mut bytes[..])
            .map_err(SshKeyError::Random)?;
        bytes[0] &= 1;
        // Refused are zero and what is not below the order of the curve, which together are less
        // than one in 2^250; drawing anew keeps the choice even.
        if let Ok(secret) = SecretKey::from_slice(&bytes[..]) {
            return Ok(secret);
        }
    }
}

/// `to_sec1_pem` leaves out the name of the curve, and OpenSSH then refuses the file.
fn private_pem(
    secret: &SecretKey,
    point: &p521::EncodedPoint,
) -> Result<Zeroizing<String>, SshKeyError> {
    use sec1::der::{Encode, pem::PemLabel};
    let error = |error: sec1::der::Error| SshKeyError::Private(error.to_string());
    let scalar = Zeroizing::new(secret.to_bytes());
    let key = sec1::EcPrivateKey {
        private_key: &scalar,
        parameters: Some(sec1::EcParameters::NamedCurve(p521::NistP521::OID)),
        public_key: Some(point.as_bytes()),
    };
    let der = Zeroizing::new(key.to_der().map_err(error)?);
    sec1::der::pem::encode_string(sec1::EcPrivateKey::PEM_LABEL, LineEnding::LF, &der)
        .map(Zeroizing::new)
        .map_err(|e| SshKeyError::Private(e.to_string()))
}

fn public_line(point: &p521::EncodedPoint) -> Result<String, SshKeyError> {
    let data = ssh_key::public::EcdsaPublicKey::from_sec1_bytes(point.as_bytes())
        .map_err(SshKeyError::Public)?;
    let mut line = ssh_key::PublicKey::new(data.into(), "")
        .to_openssh()
        .map_err(SshKeyError::Public)?;
    line.truncate(line.trim_end().len());
    line.push('\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pair_has_the_form_of_the_go_operator() {
        let pair = generate().unwrap();
        let pem = &*pair.private_pem;
        assert!(pem.starts_with("-----BEGIN EC PRIVATE KEY-----\n"), "form");
        assert!(pem.ends_with("\n-----END EC PRIVATE KEY-----\n"), "form");
        let line = &pair.public_line;
        // The wire form of a P-521 key begins with its own name, hence the fixed base64.
        assert!(
            line.starts_with(
                "ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACF"
            ),
            "{line}"
        );
        assert!(line.ends_with('\n'));
        assert_eq!(line.split_whitespace().count(), 2);
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn the_private_half_decodes_to_the_public_one() {
        for _ in 0..3 {
            let pair = generate().unwrap();
            let secret = SecretKey::from_sec1_pem(&pair.private_pem).unwrap();
            let again = public_line(&p521::EncodedPoint::from(secret.public_key())).unwrap();
            assert_eq!(again, pair.public_line);
        }
    }

    #[test]
    fn every_pair_is_new() {
        assert_ne!(
            generate().unwrap().public_line,
            generate().unwrap().public_line
        );
    }

    #[test]
    fn debug_output_hides_the_private_half() {
        let pair = generate().unwrap();
        let shown = format!("{pair:?}");
        assert!(!shown.contains("PRIVATE"));
        let middle = pair.private_pem.lines().nth(1).unwrap();
        assert!(!shown.contains(middle));
    }

    /// OpenSSH reads the file with the mode that it insists on. Skipped where there is none.
    #[test]
    fn openssh_agrees_with_the_public_line() {
        use std::os::unix::fs::OpenOptionsExt;
        let pair = generate().unwrap();
        let path = std::env::temp_dir().join(format!("mpi-operator-key-{}", std::process::id()));
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .unwrap();
        std::io::Write::write_all(&mut file, pair.private_pem.as_bytes()).unwrap();
        let output = std::process::Command::new("ssh-keygen")
            .arg("-y")
            .arg("-f")
            .arg(&path)
            .output();
        std::fs::remove_file(&path).unwrap();
        let output = match output {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("skipped: there is no ssh-keygen");
                return;
            }
            other => other.unwrap(),
        };
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let shown = String::from_utf8(output.stdout).unwrap();
        assert_eq!(shown.trim(), pair.public_line.trim());
    }
}
