//! Prints the CustomResourceDefinition as YAML; `make crd` puts it into the manifests.

use std::io::Write;
use std::process::ExitCode;

use mpi_operator::api::crd::{CrdFeatures, GENERATED, custom_resource_definition, to_yaml};

fn main() -> ExitCode {
    let mut features = CrdFeatures { cel: true };
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--without-cel" => features.cel = false,
            other => {
                eprintln!("crdgen: unknown argument {other:?}; usage: crdgen [--without-cel]");
                return ExitCode::from(2);
            }
        }
    }
    let yaml = to_yaml(&custom_resource_definition(features));
    if let Err(error) = write!(std::io::stdout(), "{GENERATED}\n{yaml}") {
        eprintln!("crdgen: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
