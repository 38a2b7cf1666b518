//! `spillgate modules`: the module library in words.

use std::process::ExitCode;

use crate::commands;
use anyhow::anyhow;
use clap::Args;
use spillgate_modules::reference;

/// Which type, in which form.
#[derive(Args)]
pub(crate) struct ModulesArgs {
    /// A type, to see its inputs, outputs and options; without it all types are listed.
    name: Option<String>,
    /// Print the page docs/modules.md.
    #[arg(long, conflicts_with = "name")]
    markdown: bool,
}

/// Prints the list, a type or the page.
pub(crate) fn run(args: &ModulesArgs) -> anyhow::Result<ExitCode> {
    let catalog = commands::library().catalog();
    let text = match &args.name {
        Some(name) => {
            let ty = catalog.get(name).ok_or_else(|| {
                let names: Vec<&str> = catalog.types().map(|ty| ty.name.as_str()).collect();
                anyhow!("no module type \"{name}\"; there are: {}", names.join(", "))
            })?;
            reference::describe(ty)
        }
        None if args.markdown => reference::page(&catalog),
        None => reference::list(&catalog),
    };
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
