//! The process: what was typed, a runtime, an exit code. 0 is done, 1 is one line on stderr, 2 is
//! not understood.

use std::process::ExitCode;

use kubectl_mpi::args::{self, Parsed};
use kubectl_mpi::run;

fn main() -> ExitCode {
    let invocation = match args::parse(std::env::args_os()) {
        Ok(Parsed::Run(invocation)) => *invocation,
        Ok(Parsed::Help(text)) => {
            // Nobody reads on after `| head`.
            let _ = run::print(&text);
            return ExitCode::SUCCESS;
        }
        Err(text) => {
            eprint!("{text}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run::run(invocation)),
        Err(error) => Err(run::Error::Runtime(error)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "error: {}",
                kubectl_mpi::table::one_line(&error.to_string())
            );
            ExitCode::from(1)
        }
    }
}
