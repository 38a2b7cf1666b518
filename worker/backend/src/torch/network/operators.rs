//! What models may name (`native/operators.inc`): tests with archives whose code was written by hand.

use std::collections::{BTreeSet, HashSet};
use std::io::{Cursor, Read, Write};

use zip::ZipArchive;
use zip::write::{FileOptions, ZipWriter};

use super::tests::fixture;
use super::*;

/// Listed operators that take a text: how to compute (`einsum`, `pad`), a name of a dimension, a kind of device, or text to work on.
const LOOKED_AT: &[&str] = &[
    "aten::Delete",
    "aten::Float",
    "aten::Int",
    "aten::__contains__",
    "aten::__getitem__",
    "aten::__interpolate",
    "aten::__upsample",
    "aten::_convolution_mode",
    "aten::_linalg_eigh",
    "aten::_linalg_svd",
    "aten::_set_item",
    "aten::add",
    "aten::align_to",
    "aten::all",
    "aten::any",
    "aten::argsort",
    "aten::capitalize",
    "aten::cat",
    "aten::center",
    "aten::clear",
    "aten::concat",
    "aten::concatenate",
    "aten::conv1d",
    "aten::conv2d",
    "aten::conv3d",
    "aten::copy",
    "aten::count",
    "aten::cummax",
    "aten::cummin",
    "aten::cumprod",
    "aten::cumprod_",
    "aten::cumsum",
    "aten::cumsum_",
    "aten::device",
    "aten::diagonal",
    "aten::dict",
    "aten::div",
    "aten::div_",
    "aten::divide",
    "aten::divide_",
    "aten::einsum",
    "aten::empty",
    "aten::endswith",
    "aten::eq",
    "aten::expandtabs",
    "aten::fft_fft",
    "aten::fft_fft2",
    "aten::fft_fftn",
    "aten::fft_hfft",
    "aten::fft_hfft2",
    "aten::fft_hfftn",
    "aten::fft_ifft",
    "aten::fft_ifft2",
    "aten::fft_ifftn",
    "aten::fft_ihfft",
    "aten::fft_ihfft2",
    "aten::fft_ihfftn",
    "aten::fft_irfft",
    "aten::fft_irfft2",
    "aten::fft_irfftn",
    "aten::fft_rfft",
    "aten::fft_rfft2",
    "aten::fft_rfftn",
    "aten::find",
    "aten::flatten",
    "aten::format",
    "aten::full",
    "aten::gather",
    "aten::ge",
    "aten::gelu",
    "aten::gelu_",
    "aten::get",
    "aten::get_autocast_dtype",
    "aten::gt",
    "aten::index",
    "aten::index_add",
    "aten::index_copy_",
    "aten::index_fill",
    "aten::index_fill_",
    "aten::index_reduce",
    "aten::index_reduce_",
    "aten::index_select",
    "aten::isalnum",
    "aten::isalpha",
    "aten::isdecimal",
    "aten::isdigit",
    "aten::isidentifier",
    "aten::islower",
    "aten::isnumeric",
    "aten::isprintable",
    "aten::isspace",
    "aten::istitle",
    "aten::isupper",
    "aten::items",
    "aten::join",
    "aten::keys",
    "aten::kthvalue",
    "aten::le",
    "aten::len",
    "aten::linalg_cond",
    "aten::linalg_eigh",
    "aten::linalg_eigvalsh",
    "aten::linalg_lstsq",
    "aten::linalg_matrix_norm",
    "aten::linalg_norm",
    "aten::linalg_qr",
    "aten::linalg_svd",
    "aten::linalg_svdvals",
    "aten::list",
    "aten::ljust",
    "aten::log_softmax",
    "aten::logcumsumexp",
    "aten::logsumexp",
    "aten::lower",
    "aten::lstrip",
    "aten::lt",
    "aten::max",
    "aten::mean",
    "aten::median",
    "aten::meshgrid",
    "aten::min",
    "aten::mode",
    "aten::nanmedian",
    "aten::nanquantile",
    "aten::ne",
    "aten::norm",
    "aten::ones",
    "aten::ord",
    "aten::pad",
    "aten::pad_sequence",
    "aten::partition",
    "aten::percentFormat",
    "aten::pop",
    "aten::popitem",
    "aten::prod",
    "aten::quantile",
    "aten::rand",
    "aten::randn",
    "aten::refine_names",
    "aten::remove",
    "aten::rename",
    "aten::rename_",
    "aten::replace",
    "aten::rfind",
    "aten::rindex",
    "aten::rjust",
    "aten::rpartition",
    "aten::rsplit",
    "aten::rstrip",
    "aten::scatter",
    "aten::scatter_",
    "aten::scatter_add",
    "aten::scatter_reduce",
    "aten::scatter_reduce_",
    "aten::searchsorted",
    "aten::select",
    "aten::setdefault",
    "aten::size",
    "aten::slice",
    "aten::softmax",
    "aten::sort",
    "aten::sorted",
    "aten::split",
    "aten::splitlines",
    "aten::squeeze",
    "aten::squeeze_",
    "aten::startswith",
    "aten::std",
    "aten::std_mean",
    "aten::stft",
    "aten::stride",
    "aten::strip",
    "aten::sum",
    "aten::swapcase",
    "aten::title",
    "aten::transpose",
    "aten::unbind",
    "aten::unflatten",
    "aten::update",
    "aten::upper",
    "aten::values",
    "aten::var",
    "aten::var_mean",
    "aten::warn",
    "aten::zeros",
    "aten::zfill",
    "prim::ModuleContainerIndex",
    "prim::RaiseException",
    "prim::StringIndex",
];

const LIST: &str = include_str!("../../../native/operators.inc");

/// The archive of a module `Pair` with this code instead of its own.
fn coded(code: &str) -> Vec<u8> {
    let mut from = ZipArchive::new(Cursor::new(fixture("pair"))).expect("an archive");
    let mut into = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = FileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for i in 0..from.len() {
        let mut entry = from.by_index(i).expect("an entry");
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("its content");
        if entry.name().ends_with(".py") {
            content = code.as_bytes().to_vec();
        }
        into.start_file(entry.name(), stored).expect("a place");
        into.write_all(&content).expect("written");
    }
    into.finish().expect("an archive").into_inner()
}

/// A module that runs these lines and returns `y`. `beside` is written before it: further classes and functions.
fn module(beside: &str, lines: &str) -> String {
    format!(
        "{beside}
class Pair(Module):
  __parameters__ = [\"factor\", ]
  __buffers__ = []
  factor : Tensor
  training : bool
  _is_full_backward_hook : Optional[bool]
  def forward(self: __torch__.Pair, x: Tensor) -> Tensor:
{lines}
    return y
"
    )
}

fn said(code: &str) -> String {
    let loaded = super::load(&Archive::new(&coded(code)), CPU);
    loaded.map_or_else(|why| why, |_| "loaded".to_owned())
}

const CPU: Device = Device::Cpu;
const SECRET: &str = "\"/etc/hostname\", False, 4";

#[test]
fn operators_that_open_files_are_refused_however_they_are_written_and_wherever_they_stand() {
    let in_class = |method: &str| {
        format!(
            "
class Hidden:
  def {method}(self: __torch__.Hidden, x: Tensor) -> Tensor:
    y = torch.from_file({SECRET})
    return y
"
        )
    };
    let function = format!(
        "
def hidden(x: Tensor) -> Tensor:
  y = torch.from_file({SECRET})
  return y
"
    );
    let interface = format!(
        "
class Any_(Interface):
  def run(self: __torch__.Any_, x: Tensor) -> Tensor:
    pass
{}",
        in_class("run")
    );
    let from_file = "names aten::from_file";
    let cases: [(&str, String, &str); 13] = [
        (
            "plain",
            module("", &format!("    y = torch.from_file({SECRET})")),
            from_file,
        ),
        (
            "with a blank",
            module("", &format!("    y = torch.from_file ({SECRET})")),
            from_file,
        ),
        (
            "by its name space",
            module("", &format!("    y = ops.aten.from_file({SECRET})")),
            from_file,
        ),
        (
            "over two lines",
            module("", &format!("    y = torch.from_file(\n      {SECRET})")),
            from_file,
        ),
        (
            "saving",
            module("", "    torch.save (x, \"/dev/shm/x\")\n    y = x"),
            "names aten::save",
        ),
        (
            "in a branch",
            module(
                "",
                &format!(
                    "    if bool(torch.gt(torch.sum(x), 1e30)):\n      y = torch.from_file({SECRET})\n    else:\n      y = x"
                ),
            ),
            from_file,
        ),
        (
            "in a loop",
            module(
                "",
                &format!(
                    "    y = x\n    for i in range(torch.len(torch.size(x))):\n      y = torch.from_file({SECRET})"
                ),
            ),
            from_file,
        ),
        (
            "in what runs beside it",
            module(
                "",
                &format!(
                    "    def aside():\n      return torch.from_file({SECRET})\n    f = fork(aside)\n    y = torch.wait(f)"
                ),
            ),
            from_file,
        ),
        (
            "in a function",
            module(&function, "    y = __torch__.hidden(x)"),
            from_file,
        ),
        (
            "in a method that nothing calls",
            module(
                &in_class("never"),
                "    h = __torch__.Hidden.__new__(__torch__.Hidden)\n    y = x",
            ),
            from_file,
        ),
        (
            "behind an interface",
            module(
                &interface,
                "    h = annotate(__torch__.Any_, __torch__.Hidden.__new__(__torch__.Hidden))\n    y = (h).run(x)",
            ),
            from_file,
        ),
        (
            "with raw memory",
            module(
                "",
                "    y = ops.inductor._reinterpret_tensor(x, [1 << 20], [1], 0)",
            ),
            "names inductor::_reinterpret_tensor",
        ),
        (
            "a class of libtorch",
            module(
                "",
                "    p = __torch__.torch.classes.profiling._ScriptProfile.__new__(__torch__.torch.classes.profiling._ScriptProfile)\n    q = (p).enable()\n    y = x",
            ),
            "_ScriptProfile",
        ),
    ];
    for (case, code, part) in cases {
        let said = said(&code);
        assert!(said.contains(part), "{case}: {said}");
    }
}

#[test]
fn what_networks_compute_with_is_loaded() {
    let lines = "    m = torch.reshape(torch.mean(x), [1])
    d = annotate(Dict[str, Tensor], {\"a\": m})
    z = d[\"a\"]
    if bool(torch.gt(torch.sum(z), 1.)):
      y = torch.softmax(x, 1)
    else:
      y = torch.upsample_bilinear2d(x, [4, 4], False, None)";
    assert_eq!(said(&module("", lines)), "loaded");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    for file in std::fs::read_dir(folder).expect("fixtures") {
        let path = file.expect("a file").path();
        if path.extension().is_some_and(|e| e == "pt") {
            let bytes = std::fs::read(&path).expect("a fixture");
            let loaded = super::load(&Archive::new(&bytes), CPU).map(|_| ());
            assert_eq!(loaded, Ok(()), "{}", path.display());
        }
    }
}

/// The schemas of all operators that libtorch has, a line each: `aten::abs(Tensor self) -> Tensor`.
fn schemas() -> String {
    unsafe extern "C" {
        fn spillgate_schemas() -> *mut c_char;
    }
    super::super::configure();
    // SAFETY: it gives a text that is freed here.
    said_of(unsafe { spillgate_schemas() })
}

fn said_of(text: *mut c_char) -> String {
    crate::native::said(text).expect_err("a text")
}

/// Who adds an operator that takes a text adds it here, too, after a look at what the text is: never a path.
#[test]
fn operators_are_known_to_libtorch_and_those_that_take_a_text_were_looked_at() {
    let names: Vec<&str> = LIST
        .lines()
        .filter(|line| !line.starts_with("//") && !line.is_empty())
        .map(|line| line.trim_matches(|c| c == '"' || c == ','))
        .collect();
    assert!(names.len() > 1000 && names.is_sorted(), "{}", names.len());
    let schemas = schemas();
    let name = |schema: &str| schema.split(['(', '.']).next().unwrap_or("").to_owned();
    let known: HashSet<String> = schemas.lines().map(name).collect();
    let of_graphs = |name: &&&str| !name.starts_with("prim::") && !known.contains(**name);
    assert_eq!(names.iter().find(of_graphs), None);
    let takes_text = |schema: &&str| {
        let given = schema.split(") ->").next().unwrap_or("");
        given
            .split(['(', ','])
            .any(|argument| argument.trim().starts_with("str"))
    };
    let with_text: BTreeSet<String> = schemas.lines().filter(takes_text).map(name).collect();
    let found: Vec<&str> = with_text
        .iter()
        .map(|n| n.as_str())
        .filter(|n| names.contains(n))
        .collect();
    assert_eq!(found, LOOKED_AT);
}
