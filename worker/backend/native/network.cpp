// TorchScript modules whose numbers are exchanged: one archive is compiled, and every archive of its form is a copy of that with other
// numbers.
//
// A part is a piece of an archive's bytes that holds the numbers of one storage. Functions that can fail return a text to be freed, or
// null.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/import.h>

#include "operators.h"
#include "told.h"

namespace {

using c10::IValue;
using torch::jit::Block;
using torch::jit::Function;
using torch::jit::Graph;
using torch::jit::Module;
using torch::jit::Node;
using ObjectPtr = c10::intrusive_ptr<c10::ivalue::Object>;

constexpr size_t NO_PART = SIZE_MAX;

// Why the numbers of a module cannot be exchanged.
struct Fixed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An archive in memory. Notes where each part of it was read to.
class Bytes : public caffe2::serialize::ReadAdapterInterface {
 public:
  Bytes(const uint8_t* bytes, size_t size, const size_t* starts, const size_t* sizes, size_t n_parts)
      : bytes_(bytes),
        size_(size),
        starts_(starts, starts + n_parts),
        sizes_(sizes, sizes + n_parts),
        read_to_(n_parts, nullptr) {
    for (size_t part = 0; part < n_parts; part++) {
      parts_.emplace(starts[part], part);
    }
  }

  size_t size() const override {
    return size_;
  }

  size_t read(uint64_t at, void* to, size_t n, const char*) const override {
    if (at >= size_) {
      return 0;
    }
    n = std::min(n, size_ - static_cast<size_t>(at));
    memcpy(to, bytes_ + at, n);
    auto found = parts_.find(at);
    if (found != parts_.end() && sizes_[found->second] == n) {
      read_to_[found->second] = to;
    }
    return n;
  }

  const std::vector<size_t>& sizes() const {
    return sizes_;
  }

  bool holds(size_t part, const void* numbers) const {
    return memcmp(bytes_ + starts_[part], numbers, sizes_[part]) == 0;
  }

  // The part that was read to there.
  std::unordered_map<const void*, size_t> places() const {
    std::unordered_map<const void*, size_t> places;
    for (size_t part = 0; part < read_to_.size(); part++) {
      if (sizes_[part] > 0 && read_to_[part] != nullptr) {
        places.emplace(read_to_[part], part);
      }
    }
    return places;
  }

 private:
  const uint8_t* bytes_;
  size_t size_;
  std::vector<size_t> starts_;
  std::vector<size_t> sizes_;
  std::unordered_map<uint64_t, size_t> parts_;
  mutable std::vector<void*> read_to_;
};

// What a slot of an object holds in each copy.
struct Slot {
  enum Kind { VALUE, TENSOR, OBJECT } kind;
  // VALUE: equal in all copies.
  IValue value;
  // TENSOR: a view of the storage of a part, or of one without numbers.
  size_t part = NO_PART;
  int64_t offset = 0;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  at::ScalarType kind_of_number = at::kFloat;
  // OBJECT: its place among the objects.
  size_t object = 0;
};

struct Object {
  c10::StrongTypePtr type;
  std::vector<Slot> slots;
};

// A compiled module without its numbers. The first object is the module itself.
struct Template {
  std::vector<Object> objects;
  std::vector<size_t> part_sizes;
};

// The storages of one copy, by part, as tensors of bytes.
struct Storages {
  std::vector<at::Tensor> parts;
};

// Reads a compiled module.
class Reader {
 public:
  explicit Reader(const Bytes& archive)
      : archive_(archive), sizes_(archive.sizes()), places_(archive.places()), found_(sizes_.size(), false) {}

  std::unique_ptr<Template> read(Module& module) {
    thaw(module);
    auto made = std::make_unique<Template>();
    made->part_sizes = sizes_;
    object(module._ivalue(), *made);
    for (size_t part = 0; part < sizes_.size(); part++) {
      if (sizes_[part] > 0 && !found_[part]) {
        throw Fixed("numbers of it are neither attributes nor constants of its module");
      }
    }
    return made;
  }

 private:
  const Bytes& archive_;
  const std::vector<size_t>& sizes_;
  std::unordered_map<const void*, size_t> places_;
  std::vector<bool> found_;
  std::unordered_map<const c10::ivalue::Object*, size_t> known_;
  std::vector<IValue> lists_;
  size_t n_attributes_ = 0;

  // The part whose numbers the storage of a tensor holds; NO_PART for a tensor without numbers.
  size_t part_of(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage() || tensor.is_quantized() ||
        tensor.layout() != at::kStrided || tensor.is_conj() || tensor.is_neg()) {
      throw Fixed("it has a tensor that is no plain array");
    }
    auto storage = tensor.storage();
    if (storage.nbytes() == 0) {
      return NO_PART;
    }
    auto found = places_.find(storage.data());
    if (found == places_.end() || sizes_[found->second] != storage.nbytes() ||
        !archive_.holds(found->second, storage.data())) {
      throw Fixed("a tensor of it is no part of the archive");
    }
    return found->second;
  }

  // Makes constants attributes: libtorch computes with constants when it compiles, and other numbers would come too late.
  void thaw(Module& module) {
    std::unordered_set<const Function*> own;
    for (const auto& method : module.get_methods()) {
      own.insert(&method.function());
    }
    size_t n_objects = 0;
    for (const auto& of : module.modules()) {
      n_objects += of.type() == module.type();
    }
    auto unit = module._ivalue()->compilation_unit();
    for (Function* function : unit->get_functions()) {
      auto* compiled = torch::jit::tryToGraphFunction(*function);
      if (compiled == nullptr) {
        throw Fixed("it has a function that is not compiled");
      }
      if (function->name() == "__setstate__") {
        throw Fixed("it computes its attributes when it is read");
      }
      compiled->ensure_defined();
      auto graph = compiled->graph();
      std::vector<Node*> constants;
      tensors(graph->block(), constants);
      if (constants.empty()) {
        continue;
      }
      if (own.count(function) == 0 || n_objects != 1) {
        throw Fixed("a function of it that is no method of its module has numbers");
      }
      for (Node* constant : constants) {
        attribute(module, *graph, constant);
      }
    }
  }

  // Constants that are tensors.
  void tensors(Block* block, std::vector<Node*>& constants) {
    for (Node* node : block->nodes()) {
      if (node->kind() == c10::prim::SetAttr) {
        throw Fixed("it changes its attributes as it runs");
      }
      if (node->hasAttribute(c10::attr::Subgraph)) {
        throw Fixed("it runs parts of itself beside each other");
      }
      if (node->kind() == c10::prim::Constant && node->hasAttribute(c10::attr::value)) {
        auto kind = node->kindOf(c10::attr::value);
        if (kind == torch::jit::AttributeKind::t) {
          constants.push_back(node);
        } else if (!is_plain(*torch::jit::toIValue(node->output()))) {
          throw Fixed("it has a constant that is made of others");
        }
      }
      for (Block* inner : node->blocks()) {
        tensors(inner, constants);
      }
    }
  }

  void attribute(Module& module, Graph& graph, Node* constant) {
    auto tensor = constant->t(c10::attr::value);
    auto name = "spillgate_" + std::to_string(n_attributes_++);
    module.register_attribute(name, c10::TensorType::get(), tensor);
    torch::jit::WithInsertPoint here(constant);
    auto* value = graph.insertGetAttr(graph.inputs().at(0), name);
    constant->output()->replaceAllUsesWith(value);
    constant->destroy();
  }

  size_t object(const ObjectPtr& from, Template& into) {
    auto known = known_.find(from.get());
    if (known != known_.end()) {
      return known->second;
    }
    size_t place = into.objects.size();
    known_.emplace(from.get(), place);
    into.objects.push_back(Object{c10::StrongTypePtr(from->compilation_unit(), from->type()), {}});
    std::vector<Slot> slots;
    for (const IValue& value : from->slots()) {
      slots.push_back(slot(value, into));
    }
    into.objects[place].slots = std::move(slots);
    return place;
  }

  Slot slot(const IValue& value, Template& into) {
    Slot made;
    if (value.isTensor() && value.toTensor().defined()) {
      const auto& tensor = value.toTensor();
      made.kind = Slot::TENSOR;
      made.part = part_of(tensor);
      if (made.part != NO_PART) {
        found_[made.part] = true;
      }
      made.offset = tensor.storage_offset();
      made.sizes = tensor.sizes().vec();
      made.strides = tensor.strides().vec();
      made.kind_of_number = tensor.scalar_type();
    } else if (value.isObject()) {
      made.kind = Slot::OBJECT;
      made.object = object(value.toObject(), into);
    } else if (is_plain(value)) {
      if (value.isList()) {
        for (const IValue& of : lists_) {
          if (value.is(of)) {
            throw Fixed("two of its attributes are one list");
          }
        }
        lists_.push_back(value);
      }
      made.kind = Slot::VALUE;
      made.value = value;
    } else {
      throw Fixed("it has an attribute that can change: " + value.tagKind());
    }
    return made;
  }

  // Made of plain values, which tell whether they have changed.
  static bool is_plain(const IValue& value) {
    if (value.isTuple()) {
      const auto& all = value.toTupleRef().elements();
      return std::all_of(all.begin(), all.end(), is_plain);
    }
    if (value.isList()) {
      auto all = value.toListRef();
      return std::all_of(all.begin(), all.end(), is_plain);
    }
    return value.isNone() || value.isBool() || value.isInt() || value.isDouble() || value.isString() ||
        value.isDevice() || (value.isTensor() && !value.toTensor().defined());
  }
};

std::unique_ptr<Storages> storages(const Template& of, c10::Device device) {
  auto made = std::make_unique<Storages>();
  for (size_t size : of.part_sizes) {
    made->parts.push_back(at::empty({static_cast<int64_t>(size)}, at::TensorOptions(device).dtype(at::kByte)));
  }
  return made;
}

at::Tensor view(const Slot& slot, const Storages& storages, c10::Device device) {
  auto options = at::TensorOptions(device).dtype(slot.kind_of_number);
  if (slot.part == NO_PART) {
    return at::empty_strided(slot.sizes, slot.strides, options);
  }
  auto tensor = at::empty({0}, options);
  tensor.set_(storages.parts[slot.part].storage(), slot.offset, slot.sizes, slot.strides);
  return tensor;
}

Module copy(const Template& of, const Storages& storages, c10::Device device) {
  std::vector<ObjectPtr> objects;
  for (const auto& object : of.objects) {
    objects.push_back(c10::ivalue::Object::create(object.type, object.slots.size()));
  }
  for (size_t i = 0; i < objects.size(); i++) {
    const auto& slots = of.objects[i].slots;
    for (size_t place = 0; place < slots.size(); place++) {
      const Slot& slot = slots[place];
      switch (slot.kind) {
        case Slot::VALUE:
          objects[i]->setSlot(place, slot.value.deepcopy());
          break;
        case Slot::TENSOR:
          objects[i]->setSlot(place, view(slot, storages, device));
          break;
        case Slot::OBJECT:
          objects[i]->setSlot(place, objects[slot.object]);
          break;
      }
    }
  }
  return Module(objects[0]);
}

bool is_view(const at::Tensor& tensor, const Slot& slot, const Storages& storages) {
  if (!tensor.defined() || !tensor.has_storage()) {
    return false;
  }
  bool is_there = slot.part == NO_PART || tensor.storage().data() == storages.parts[slot.part].storage().data();
  return is_there && tensor.storage_offset() == slot.offset && tensor.sizes() == slot.sizes &&
      tensor.strides() == slot.strides && tensor.scalar_type() == slot.kind_of_number;
}

// Whether an object and those in it still have the values and the tensors that they were made with. Counts views of each part.
bool is_whole(
    const Template& of,
    size_t place,
    const ObjectPtr& object,
    const Storages& storages,
    std::vector<size_t>& views) {
  const auto& slots = of.objects[place].slots;
  for (size_t i = 0; i < slots.size(); i++) {
    const Slot& slot = slots[i];
    const IValue& value = object->getSlot(i);
    switch (slot.kind) {
      case Slot::VALUE:
        if (value != slot.value) {
          return false;
        }
        break;
      case Slot::TENSOR:
        if (!value.isTensor() || !is_view(value.toTensor(), slot, storages)) {
          return false;
        }
        if (slot.part != NO_PART) {
          views[slot.part]++;
        }
        break;
      case Slot::OBJECT:
        if (!value.isObject() || !is_whole(of, slot.object, value.toObject(), storages, views)) {
          return false;
        }
        break;
    }
  }
  return true;
}

c10::Device device_of(int gpu) {
  return gpu < 0 ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(gpu));
}

// Whether code copies tensors to the CPU on purpose.
bool uses_cpu(Block* block) {
  static const auto CPU = c10::Symbol::fromQualString("aten::cpu");
  for (Node* node : block->nodes()) {
    if (node->kind() == CPU) {
      return true;
    }
    if (node->hasAttribute(c10::attr::Subgraph) && uses_cpu(node->g(c10::attr::Subgraph)->block())) {
      return true;
    }
    for (Block* inner : node->blocks()) {
      if (uses_cpu(inner)) {
        return true;
      }
    }
  }
  return false;
}

// Names a GPU where code names the CPU.
void name_device(Graph& graph, Block* block, c10::Device device) {
  std::vector<Node*> named;
  for (Node* node : block->nodes()) {
    if (node->hasAttribute(c10::attr::Subgraph)) {
      auto inner = node->g(c10::attr::Subgraph);
      name_device(*inner, inner->block(), device);
    }
    if (node->kind() == c10::prim::Constant && node->output()->type()->kind() == c10::TypeKind::DeviceObjType &&
        torch::jit::toIValue(node->output())->toDevice().is_cpu()) {
      named.push_back(node);
    }
    for (Block* inner : node->blocks()) {
      name_device(graph, inner, device);
    }
  }
  for (Node* node : named) {
    torch::jit::WithInsertPoint here(node);
    node->output()->replaceAllUsesWith(graph.insertConstant(device));
    node->destroy();
  }
}

// A module whose numbers lie on `numbers`, and that will run on `device`. A trace names the device that it was made on; on a GPU its
// tensors stay there, unless code copies some to the CPU itself. The records for debuggers are not read: a form does not count them.
Module compiled(std::shared_ptr<Bytes> archive, c10::Device numbers, c10::Device device) {
  Module module = torch::jit::load(std::move(archive), numbers, false);
  only_listed_operators(module);
  module.eval();
  if (device.is_cpu()) {
    return module;
  }
  std::vector<std::shared_ptr<Graph>> graphs;
  for (Function* function : module._ivalue()->compilation_unit()->get_functions()) {
    if (auto* of = torch::jit::tryToGraphFunction(*function)) {
      of->ensure_defined();
      graphs.push_back(of->graph());
    }
  }
  for (const auto& graph : graphs) {
    if (uses_cpu(graph->block())) {
      return module;
    }
  }
  for (const auto& graph : graphs) {
    name_device(*graph, graph->block(), device);
  }
  return module;
}

} // namespace

extern "C" {

// Compiles an archive by itself, on the CPU (-1) or a GPU.
char* spillgate_compiled(const uint8_t* bytes, size_t size, int gpu, Module** out) {
  return told([&] {
    auto archive = std::make_shared<Bytes>(bytes, size, nullptr, nullptr, 0);
    *out = new Module(compiled(std::move(archive), device_of(gpu), device_of(gpu)));
  });
}

// Compiles an archive for the CPU (-1) or a GPU. `out` stays null where the numbers cannot be exchanged; `why` is a text then, to be freed.
char* spillgate_template(
    const uint8_t* bytes,
    size_t size,
    const size_t* starts,
    const size_t* sizes,
    size_t n_parts,
    int gpu,
    Template** out,
    char** why) {
  return told([&] {
    auto archive = std::make_shared<Bytes>(bytes, size, starts, sizes, n_parts);
    Module module = compiled(archive, c10::Device(c10::kCPU), device_of(gpu));
    try {
      *out = Reader(*archive).read(module).release();
    } catch (const std::exception& error) {
      *why = strdup(error.what());
    }
  });
}

void spillgate_template_free(Template* of) {
  delete of;
}

// A copy without numbers, on the device that it was compiled for.
char* spillgate_copy(const Template* of, int gpu, Module** module, Storages** parts) {
  return told([&] {
    at::NoGradGuard no_grad;
    auto device = device_of(gpu);
    auto made = storages(*of, device);
    auto* copied = new Module(copy(*of, *made, device));
    *module = copied;
    *parts = made.release();
  });
}

// Gives a copy the numbers of an archive. They are there when this returns, but for what the calling thread's stream has to do.
char* spillgate_fill(Storages* of, const uint8_t* bytes, const size_t* starts) {
  return told([&] {
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < of->parts.size(); i++) {
      auto& part = of->parts[i];
      if (part.numel() == 0) {
        continue;
      }
      const uint8_t* from = bytes + starts[i];
      if (part.is_cpu()) {
        memcpy(part.data_ptr(), from, part.nbytes());
      } else {
        auto host = at::from_blob(const_cast<uint8_t*>(from), part.sizes(), at::kByte);
        part.copy_(host, true);
      }
    }
  });
}

// Whether a copy still has what it was made with, alone: code can add to a list, give a tensor other memory, and give a view of its
// numbers as an output.
bool spillgate_is_whole(const Template* of, const Module* module, const Storages* parts) {
  try {
    std::vector<size_t> views(parts->parts.size(), 0);
    if (!is_whole(*of, 0, module->_ivalue(), *parts, views)) {
      return false;
    }
    for (size_t part = 0; part < views.size(); part++) {
      // And the tensor of bytes.
      if (parts->parts[part].storage().use_count() != views[part] + 1) {
        return false;
      }
    }
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void spillgate_storages_free(Storages* of) {
  delete of;
}

} // extern "C"
