//! Compiled modules whose numbers are exchanged (`native/network.cpp`). libtorch takes longer to compile a TorchScript archive than to read
//! its numbers, and compiles what it runs once more at its first run. So the first archive of a form ([`super::archive`]) is compiled, and
//! later ones are copies of it with numbers of their own. They share what libtorch compiled.
//!
//! A model that is given back waits as a spare: the next of its form on the device takes its place, with its memory and, on a GPU, with its
//! records.
//!
//! Numbers can be exchanged where all of them are attributes or constants of the module, and the code changes no attribute. Constants are
//! made attributes. Any other archive is compiled each time.

#![expect(unsafe_code, reason = "calls of C++ functions")]

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use parking_lot::Mutex;
use tch::{CModule, Device};

use super::archive::{Archive, Form, FormId};
use super::recorded::Recorded;
use crate::cuda;
use crate::native::said;

/// Most forms that are kept compiled. The one that was compiled first gives way.
pub(crate) const FORMS_MAX: usize = 256;
/// Most spares of one form on one device.
pub(crate) const SPARES_MAX: usize = 2;
/// Most spares on one device.
pub(crate) const SPARES_ALL_MAX: usize = 64;
/// Most bytes of all spares on the CPU. The oldest give way.
pub(crate) const SPARE_BYTES_MAX_CPU: usize = 128 << 20;
/// The same for one GPU.
pub(crate) const SPARE_BYTES_MAX_GPU: usize = 512 << 20;

unsafe extern "C" {
    fn spillgate_compiled(
        bytes: *const u8,
        size: usize,
        gpu: c_int,
        out: *mut *mut c_void,
    ) -> *mut c_char;
    fn spillgate_template(
        bytes: *const u8,
        size: usize,
        starts: *const usize,
        sizes: *const usize,
        n_parts: usize,
        gpu: c_int,
        out: *mut *mut c_void,
        why: *mut *mut c_char,
    ) -> *mut c_char;
    fn spillgate_template_free(of: *mut c_void);
    fn spillgate_copy(
        of: *const c_void,
        gpu: c_int,
        module: *mut *mut c_void,
        parts: *mut *mut c_void,
    ) -> *mut c_char;
    fn spillgate_fill(parts: *mut c_void, bytes: *const u8, starts: *const usize) -> *mut c_char;
    fn spillgate_is_whole(of: *const c_void, module: *const c_void, parts: *const c_void) -> bool;
    fn spillgate_storages_free(parts: *mut c_void);
}

/// A module on a device.
pub(super) struct Network {
    module: CModule,
    /// `None` where its numbers cannot be exchanged.
    exchange: Option<Exchange>,
}

struct Exchange {
    template: Arc<Template>,
    storages: Storages,
}

/// A module and, on a GPU, its records. They go before the weights that they read.
pub(super) struct Loaded {
    pub(super) recorded: Option<Recorded>,
    pub(super) network: Network,
}

impl Network {
    pub(super) fn module(&self) -> &CModule {
        &self.module
    }
}

/// A model until it is given back, which is when this is dropped.
pub(super) struct Lent {
    device: Device,
    /// Whether its first runs take longer than later ones: it is the first of its form here, or on a GPU has no records.
    pub(super) is_cold: bool,
    /// There until this is dropped.
    loaded: Option<Loaded>,
}

impl Lent {
    fn new(loaded: Loaded, device: Device, is_cold: bool) -> Self {
        Lent {
            device,
            is_cold,
            loaded: Some(loaded),
        }
    }
}

impl Deref for Lent {
    type Target = Loaded;

    fn deref(&self) -> &Loaded {
        self.loaded.as_ref().expect("there until it is dropped")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Loaded {
        self.loaded.as_mut().expect("there until it is dropped")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(loaded) = self.loaded.take() {
            give_back(loaded, self.device);
        }
    }
}

/// The model of an archive on a device. It may be one that was given back, with other numbers.
///
/// # Errors
/// libtorch's text.
pub(super) fn load(archive: &Archive, device: Device) -> Result<Lent, String> {
    if let Ok(form) = archive.form() {
        if let Some(mut spare) = take_spare(form.id, device)
            && let Some(exchange) = &mut spare.network.exchange
        {
            exchange.fill(archive, form, device)?;
            let is_cold = spare.recorded.as_ref().is_some_and(Recorded::is_cold);
            return Ok(Lent::new(spare, device, is_cold));
        }
        let (template, is_first) = with_room(device, || Template::of(archive, form, device))?;
        if let Some(template) = template {
            let network = with_room(device, || template.copy(archive, form, device))?;
            let loaded = Loaded {
                recorded: None,
                network,
            };
            return Ok(Lent::new(loaded, device, is_first || device.is_cuda()));
        }
    }
    let loaded = with_room(device, || compiled(archive, device))?;
    Ok(Lent::new(loaded, device, true))
}

/// Makes something on a device. Where memory is short, that of the spares there is given up, and it is made once more.
fn with_room<T>(device: Device, make: impl Fn() -> Result<T, String>) -> Result<T, String> {
    match make() {
        Err(why) if is_short(&why) && drop_spares(device) > 0 => make(),
        made => made,
    }
}

/// Whether the text of an error says that there was no memory: libtorch's for a GPU and for the host, a library's on the GPU, or C++'s.
fn is_short(why: &str) -> bool {
    const SAID: [&str; 4] = [
        "out of memory",
        "can't allocate memory",
        "ALLOC_FAILED",
        "bad_alloc",
    ];
    SAID.iter().any(|said| why.contains(said))
}

/// One whose numbers stay.
fn compiled(archive: &Archive, device: Device) -> Result<Loaded, String> {
    let (bytes, mut module) = (archive.bytes(), null_mut());
    // SAFETY: the bytes live until it returns, and `module` is written before it returns null.
    said(unsafe { spillgate_compiled(bytes.as_ptr(), bytes.len(), number(device)?, &mut module) })?;
    // SAFETY: it is a module that nothing else holds.
    let module = unsafe { owned(module) };
    let exchange = None;
    Ok(Loaded {
        recorded: None,
        network: Network { module, exchange },
    })
}

/// One that is compiled by itself and not given back.
#[cfg(test)]
pub(super) fn load_apart(archive: &Archive, device: Device) -> Result<Lent, String> {
    Ok(Lent::new(compiled(archive, device)?, device, true))
}

/// A compiled module without numbers.
struct Template {
    form: FormId,
    /// Bytes of each entry of numbers.
    sizes: Vec<usize>,
    /// Of all of them.
    bytes: usize,
    handle: NonNull<c_void>,
}

// SAFETY: nothing changes it once it is made, and libtorch counts references atomically.
unsafe impl Send for Template {}
// SAFETY: as above.
unsafe impl Sync for Template {}

/// Those of the forms that were loaded; `None` for one whose numbers cannot be exchanged.
static TEMPLATES: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// What is known of a form on a device.
struct Known {
    form: FormId,
    device: Device,
    template: Option<Arc<Template>>,
}

/// The device's number for C++.
fn number(device: Device) -> Result<c_int, String> {
    match device {
        Device::Cuda(index) => c_int::try_from(index).map_err(|e| e.to_string()),
        _ => Ok(-1),
    }
}

impl Template {
    /// That of a form on a device, compiled from an archive of it unless it is known, and whether it was compiled now. `None` where numbers
    /// cannot be exchanged.
    fn of(
        archive: &Archive,
        form: &Form,
        device: Device,
    ) -> Result<(Option<Arc<Template>>, bool), String> {
        let known = |all: &[Known]| {
            let mut all = all.iter();
            let known = all.find(|of| of.form == form.id && of.device == device);
            known.map(|of| of.template.clone())
        };
        if let Some(known) = known(&TEMPLATES.lock()) {
            return Ok((known, false));
        }
        let template = Template::compiled(archive, form, device)?;
        let mut all = TEMPLATES.lock();
        // Another thread may have compiled it meanwhile.
        if let Some(known) = known(&all) {
            return Ok((known, true));
        }
        if all.len() >= FORMS_MAX {
            all.remove(0);
        }
        all.push(Known {
            form: form.id,
            device,
            template: template.clone(),
        });
        Ok((template, true))
    }

    fn compiled(
        archive: &Archive,
        form: &Form,
        device: Device,
    ) -> Result<Option<Arc<Template>>, String> {
        let (bytes, n_parts) = (archive.bytes(), form.starts.len());
        let (mut out, mut why) = (null_mut(), null_mut());
        // SAFETY: both arrays have `n_parts` numbers, which name parts of the bytes; they are read until it returns, and `out` and `why` are
        // written.
        said(unsafe {
            spillgate_template(
                bytes.as_ptr(),
                bytes.len(),
                form.starts.as_ptr(),
                form.sizes.as_ptr(),
                n_parts,
                number(device)?,
                &mut out,
                &mut why,
            )
        })?;
        let Some(handle) = NonNull::new(out) else {
            let why = said(why).err().unwrap_or_default();
            tracing::info!(why, "models of one architecture are compiled at each load");
            return Ok(None);
        };
        Ok(Some(Arc::new(Template {
            form: form.id,
            sizes: form.sizes.clone(),
            bytes: form.sizes.iter().sum(),
            handle,
        })))
    }

    /// A copy with the numbers of an archive.
    fn copy(
        self: &Arc<Self>,
        archive: &Archive,
        form: &Form,
        device: Device,
    ) -> Result<Network, String> {
        let (mut module, mut parts) = (null_mut(), null_mut());
        // SAFETY: the template lives, and both are written before it returns null.
        said(unsafe {
            spillgate_copy(
                self.handle.as_ptr(),
                number(device)?,
                &mut module,
                &mut parts,
            )
        })?;
        let parts = NonNull::new(parts).ok_or("no numbers")?;
        let mut exchange = Exchange {
            template: self.clone(),
            storages: Storages(parts),
        };
        // SAFETY: it is a module that nothing else holds.
        let module = unsafe { owned(module) };
        exchange.fill(archive, form, device)?;
        Ok(Network {
            module,
            exchange: Some(exchange),
        })
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        // SAFETY: nothing else holds it.
        unsafe { spillgate_template_free(self.handle.as_ptr()) }
    }
}

const _: () = assert!(
    size_of::<CModule>() == size_of::<*mut c_void>(),
    "a CModule is a pointer to libtorch's module"
);

/// tch's form of a module that was made with `new`.
///
/// # Safety
/// Nothing else may hold it.
unsafe fn owned(module: *mut c_void) -> CModule {
    // SAFETY: a CModule is this pointer (above), and its drop deletes it.
    unsafe { transmute::<*mut c_void, CModule>(module) }
}

/// libtorch's module.
fn inner(module: &CModule) -> *const c_void {
    // SAFETY: a CModule is this pointer (above).
    unsafe { *std::ptr::from_ref(module).cast::<*const c_void>() }
}

/// The memory of a copy's numbers, by entry of its archive.
struct Storages(NonNull<c_void>);

// SAFETY: it is a list of tensors; what they hold is changed only while no batch runs on them.
unsafe impl Send for Storages {}

impl Drop for Storages {
    fn drop(&mut self) {
        // SAFETY: nothing else holds it.
        unsafe { spillgate_storages_free(self.0.as_ptr()) }
    }
}

impl Exchange {
    fn fill(&mut self, archive: &Archive, form: &Form, device: Device) -> Result<(), String> {
        assert_eq!(form.sizes, self.template.sizes, "numbers of another form");
        // SAFETY: there is a start for each entry; they name parts of the bytes, of the same sizes, and the bytes live until the copies are done.
        said(unsafe {
            spillgate_fill(
                self.storages.0.as_ptr(),
                archive.bytes().as_ptr(),
                form.starts.as_ptr(),
            )
        })?;
        match device {
            Device::Cuda(index) => cuda::synchronize(index),
            _ => Ok(()),
        }
    }

    /// Whether the module still runs with this memory.
    fn is_whole(&self, module: &CModule) -> bool {
        let parts = self.storages.0.as_ptr();
        // SAFETY: all three live, and nothing changes them meanwhile.
        unsafe { spillgate_is_whole(self.template.handle.as_ptr(), inner(module), parts) }
    }
}

/// Models that were given back, the oldest first.
static SPARES: Mutex<Vec<(Device, Loaded)>> = Mutex::new(Vec::new());

impl Loaded {
    fn form(&self) -> Option<FormId> {
        self.network.exchange.as_ref().map(|e| e.template.form)
    }

    fn bytes(&self) -> usize {
        self.network
            .exchange
            .as_ref()
            .map_or(0, |e| e.template.bytes)
    }
}

fn take_spare(form: FormId, device: Device) -> Option<Loaded> {
    let mut spares = SPARES.lock();
    let is_one = |(on, spare): &(Device, Loaded)| *on == device && spare.form() == Some(form);
    let place = spares.iter().rposition(is_one)?;
    Some(spares.remove(place).1)
}

/// Frees all spares of a device. Says how many there were.
fn drop_spares(device: Device) -> usize {
    let mut spares = SPARES.lock();
    let gone: Vec<_> = spares.extract_if(.., |(on, _)| *on == device).collect();
    drop(spares);
    gone.len()
}

/// Keeps a model as a spare, if it can become another. Others give way where there are too many.
fn give_back(loaded: Loaded, device: Device) {
    let exchange = loaded.network.exchange.as_ref();
    let form = loaded.form();
    let most = match device {
        Device::Cuda(_) => SPARE_BYTES_MAX_GPU,
        _ => SPARE_BYTES_MAX_CPU,
    };
    let is_good =
        exchange.is_some_and(|e| e.is_whole(&loaded.network.module) && e.template.bytes <= most);
    if !is_good {
        return;
    }
    // They are freed without the lock.
    let mut gone = Vec::new();
    let mut spares = SPARES.lock();
    spares.push((device, loaded));
    loop {
        let here = spares
            .iter()
            .enumerate()
            .filter(|(_, (on, _))| *on == device);
        let bytes: usize = here.clone().map(|(_, (_, spare))| spare.bytes()).sum();
        let same = here.clone().filter(|(_, (_, spare))| spare.form() == form);
        let first = match bytes > most || here.clone().count() > SPARES_ALL_MAX {
            true => here.clone().next(),
            false if same.clone().count() > SPARES_MAX => same.clone().next(),
            false => None,
        };
        let Some((place, _)) = first else {
            break;
        };
        gone.push(spares.remove(place));
    }
    drop(spares);
}

#[cfg(test)]
mod operators;
#[cfg(test)]
pub(super) mod tests;
