//! The shared secret of one launch, with which its ranks authenticate each other.
//!
//! It is never sent: both sides of a connection prove with HMAC-SHA256 over the other's random challenge that they
//! have it, so recorded messages cannot be replayed.

use crate::error::{Error, Result};
use hmac_sha256::HMAC;
use std::path::{Path, PathBuf};

/// A number that is used once.
pub(crate) type Nonce = [u8; 32];
/// A proof that its sender has the secret.
pub(crate) type Mac = [u8; 32];

/// The minimum length of a secret in bytes.
const MIN_SECRET_BYTES: usize = 16;

/// The source of a secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// `LOOM_TOKEN`, or a launcher's random id of the job.
    Text(String),
    /// `LOOM_TOKEN_FILE`: a file that only its owner can read.
    File(PathBuf),
    /// The user's key file, which is generated at the first use.
    User(PathBuf),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Secret::Text(_) => f.write_str("Text(..)"),
            Secret::File(path) => write!(f, "File({})", path.display()),
            Secret::User(path) => write!(f, "User({})", path.display()),
        }
    }
}

fn fault(text: String) -> Error {
    Error::Rendezvous(text)
}

fn random() -> Result<Nonce> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|e| fault(format!("cannot read random numbers from the system: {e}")))?;
    Ok(bytes)
}

impl Secret {
    /// Generates a new secret for the ranks of one launch, to be passed to them as `LOOM_TOKEN`.
    pub fn generate() -> Result<String> {
        Ok(random()?.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Reads the variables of a process: `LOOM_TOKEN`, `LOOM_TOKEN_FILE`, the random job id of mpirun or torchrun, or else the
    /// key file in the user's configuration folder.
    pub(crate) fn from_vars(var: &dyn Fn(&str) -> Option<String>) -> Result<Secret> {
        if let Some(text) = var("LOOM_TOKEN") {
            if text.len() < MIN_SECRET_BYTES {
                return Err(fault(format!(
                    "LOOM_TOKEN has {} characters, but at least {MIN_SECRET_BYTES} are needed: give all ranks the same random \
                     token, such as from `openssl rand -hex 16`",
                    text.len()
                )));
            }
            return Ok(Secret::Text(text));
        }
        if let Some(path) = var("LOOM_TOKEN_FILE") {
            return Ok(Secret::File(path.into()));
        }
        // Open MPI generates a key for the transports of each job; `torchrun --standalone` a UUID.
        if let Some(key) = var("OMPI_MCA_orte_precondition_transports").filter(|key| key.len() >= MIN_SECRET_BYTES) {
            return Ok(Secret::Text(key));
        }
        if let Some(id) = var("TORCHELASTIC_RUN_ID").filter(|id| is_uuid(id)) {
            return Ok(Secret::Text(id));
        }
        let folder = var("XDG_CONFIG_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let home = || var("HOME").or_else(|| var("USERPROFILE")).map(|home| Path::new(&home).join(".config"));
        match folder.or_else(home) {
            Some(folder) => Ok(Secret::User(folder.join("tensorloom").join("ranks.key"))),
            None => Err(fault("ranks need a shared secret: set LOOM_TOKEN or LOOM_TOKEN_FILE".into())),
        }
    }

    /// The key for proofs.
    pub(crate) fn key(&self) -> Result<MacKey> {
        let bytes = match self {
            Secret::Text(text) => text.as_bytes().to_vec(),
            Secret::File(path) => read(path, "LOOM_TOKEN_FILE")?,
            Secret::User(path) => {
                if !path.exists() {
                    make(path)?;
                }
                read(path, "the key file of ranks")?
            }
        };
        Ok(MacKey(bytes))
    }
}

fn is_uuid(text: &str) -> bool {
    let fits = |(i, c): (usize, char)| match i {
        8 | 13 | 18 | 23 => c == '-',
        _ => c.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.chars().enumerate().all(fits)
}

fn read(path: &Path, what: &str) -> Result<Vec<u8>> {
    let (shown, told) = (path.display(), |e: std::io::Error| fault(format!("{what} {}: {e}", path.display())));
    let file = std::fs::File::open(path).map_err(told)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let mode = file.metadata().map_err(told)?.mode();
        if mode & 0o077 != 0 {
            return Err(fault(format!("{what} {shown} can be read or written by others: chmod 600 {shown}")));
        }
    }
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(file, 1 << 16), &mut text).map_err(told)?;
    let text = text.trim();
    if text.len() < MIN_SECRET_BYTES {
        return Err(fault(format!(
            "{what} {shown} has {} characters, but at least {MIN_SECRET_BYTES} are needed",
            text.len()
        )));
    }
    Ok(text.as_bytes().to_vec())
}

/// Generates the user's key file, unless another rank has created it first.
fn make(path: &Path) -> Result<()> {
    let told = |e: std::io::Error| {
        fault(format!("cannot create {}: {e}; set LOOM_TOKEN or LOOM_TOKEN_FILE instead", path.display()))
    };
    let secret = Secret::generate()?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(told)?;
    }
    // Written under a temporary name first, so that no process reads a partial key.
    let own = path.with_extension(&secret[..16]);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&own).and_then(|mut file| std::io::Write::write_all(&mut file, secret.as_bytes()));
    let linked = written.and_then(|()| std::fs::hard_link(&own, path));
    let _ = std::fs::remove_file(&own);
    match linked {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(told(e)),
        _ => Ok(()),
    }
}

/// The key for proofs.
#[derive(Clone)]
pub(crate) struct MacKey(Vec<u8>);

impl MacKey {
    /// A random challenge for the other side of a connection.
    pub(crate) fn challenge() -> Result<Nonce> {
        random()
    }

    /// The proof that the sender of this answer to a challenge has the secret. `role` identifies the kind of message.
    pub(crate) fn prove(&self, role: &str, challenge: &Nonce, message: &[u8]) -> Mac {
        let mut hmac = HMAC::new(&self.0);
        hmac.update([role.len() as u8]);
        hmac.update(role);
        hmac.update(challenge);
        hmac.update(message);
        hmac.finalize()
    }

    /// Whether a proof is correct, compared in constant time.
    pub(crate) fn verify(&self, role: &str, challenge: &Nonce, message: &[u8], proof: &Mac) -> bool {
        let right = self.prove(role, challenge, message);
        right.iter().zip(proof).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(vars: &[(&str, &str)]) -> Result<Secret> {
        Secret::from_vars(&|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string()))
    }

    #[test]
    fn every_launcher_has_a_secret() {
        let text = |t: &str| Secret::Text(t.into());
        let user = |path: &str| Secret::User(path.into());
        let (uuid, long) = ("9b2f1c4e-1111-4222-8333-0123456789ab", "0123456789abcdef");
        assert_eq!(from(&[("LOOM_TOKEN", "not hexadecimal, but long")]).unwrap(), text("not hexadecimal, but long"));
        assert_eq!(from(&[("LOOM_TOKEN_FILE", "/k"), ("HOME", "/h")]).unwrap(), Secret::File("/k".into()));
        assert_eq!(from(&[("OMPI_MCA_orte_precondition_transports", long), ("HOME", "/h")]).unwrap(), text(long));
        assert_eq!(from(&[("TORCHELASTIC_RUN_ID", uuid)]).unwrap(), text(uuid));
        // Job names that users choose can be guessed.
        let key = "/h/.config/tensorloom/ranks.key";
        assert_eq!(from(&[("TORCHELASTIC_RUN_ID", "none"), ("HOME", "/h")]).unwrap(), user(key));
        assert_eq!(from(&[("SLURM_JOB_ID", "17"), ("HOME", "/h")]).unwrap(), user(key));
        assert_eq!(from(&[("XDG_CONFIG_HOME", "/x")]).unwrap(), user("/x/tensorloom/ranks.key"));
        for (vars, word) in [(&[("LOOM_TOKEN", "17")][..], "2 characters"), (&[][..], "LOOM_TOKEN_FILE")] {
            let said = from(vars).unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn key_files_are_private_and_made_once() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("tensorloom-key-{}", std::process::id()));
        let path = folder.join("deep").join("ranks.key");
        let secret = Secret::User(path.clone());
        let keys: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| secret.key().unwrap().0)).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0] && key.len() == 64));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left there");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        for secret in [secret, Secret::File(path.clone())] {
            let said = secret.key().err().unwrap().to_string();
            assert!(said.contains("chmod 600"), "{said}");
        }
        let _ = std::fs::remove_dir_all(&folder);
    }
}
