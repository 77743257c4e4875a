//! The process: flags, log, runtime, exit code.

use std::process::ExitCode;

use mpi_operator::args::{self, Config, LogFormat, Parsed};
use mpi_operator::runtime::{self, Exit};
use tracing_subscriber::EnvFilter;

/// Code of an end that the operator did not want, as in the Go operator.
const LOST: u8 = 255;

fn main() -> ExitCode {
    #[expect(
        clippy::disallowed_methods,
        reason = "flags have defaults in the environment"
    )]
    let env = |name: &str| std::env::var(name).ok();
    let config = match args::parse(std::env::args().skip(1), &env) {
        Ok(Parsed::Run(config)) => *config,
        Ok(Parsed::Version) => {
            print!("{}", args::version_text());
            return ExitCode::SUCCESS;
        }
        Ok(Parsed::Help) => {
            print!("{}", args::usage_text());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    log(&config);
    if !config.ignored_flags.is_empty() {
        tracing::info!(flags = %config.ignored_flags.join(" "), "accepted and ignored");
    }
    if !config.ignored_arguments.is_empty() {
        tracing::warn!(arguments = %config.ignored_arguments.join(" "), "arguments behind the flags are ignored");
    }
    // Passes wait for the API server most of the time; two threads keep one of them free for the
    // lease while the other decodes a long list.
    let built = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = match built {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the runtime cannot be started");
            return ExitCode::from(LOST);
        }
    };
    match runtime.block_on(runtime::run(config)) {
        Ok(Exit::Stopped) => ExitCode::SUCCESS,
        Ok(Exit::NoCrd) => ExitCode::from(1),
        Ok(Exit::Lost) => ExitCode::from(LOST),
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(LOST)
        }
    }
}

fn log(config: &Config) {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(format!("warn,mpi_operator={}", config.log_level())));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().init(),
    }
}
