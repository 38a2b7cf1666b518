#include "operators.h"

#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <vector>

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

namespace {

using c10::IValue;
using torch::jit::AttributeKind;
using torch::jit::Block;
using torch::jit::Function;
using torch::jit::Node;

// Classes that libtorch brings have names that begin so.
const std::string BUILT_IN = "__torch__.torch.classes.";

bool is_listed(const std::string& op) {
  static const std::unordered_set<std::string> LISTED = {
#include "operators.inc"
  };
  return LISTED.count(op) > 0;
}

// Those that hold the weights of quantized layers and recurrent cells.
bool is_listed_class(const std::string& name) {
  static const std::unordered_set<std::string> LISTED = {
      "quantized.Conv2dPackedParamsBase",
      "quantized.Conv3dPackedParamsBase",
      "quantized.EmbeddingPackedParamsBase",
      "quantized.LinearPackedParamsBase",
      "rnn.CellParamsBase",
  };
  return LISTED.count(name.substr(BUILT_IN.size())) > 0;
}

class Look {
 public:
  void module(const torch::jit::Module& module) {
    for (Function* function : module._ivalue()->compilation_unit()->get_functions()) {
      later(function);
    }
    value(module._ivalue(), "it");
    while (!to_do_.empty()) {
      Function* function = to_do_.back();
      to_do_.pop_back();
      // Others are methods of libtorch's classes, which are listed by class.
      if (auto* compiled = torch::jit::tryToGraphFunction(*function)) {
        compiled->ensure_defined();
        block(compiled->graph()->block(), "its function " + function->qualname().qualifiedName());
      }
    }
  }

 private:
  std::vector<Function*> to_do_;
  std::unordered_set<Function*> functions_;
  // Kept, so that no other type comes to lie where one lay that was looked at.
  std::unordered_set<c10::TypePtr> types_;

  void later(Function* function) {
    if (function != nullptr && functions_.insert(function).second) {
      to_do_.push_back(function);
    }
  }

  void block(Block* of, const std::string& where) {
    values(of->inputs(), where);
    for (Node* node : of->nodes()) {
      this->node(node, where);
    }
  }

  void node(Node* node, const std::string& where) {
    std::string kind = node->kind().toQualString();
    if (!is_listed(kind)) {
      throw std::runtime_error(where + " names " + kind + ", which is not among the operators that models may use");
    }
    values(node->outputs(), where);
    for (auto name : node->attributeNames()) {
      switch (node->kindOf(name)) {
        case AttributeKind::g:
          block(node->g(name)->block(), where);
          break;
        case AttributeKind::gs:
          for (const auto& graph : node->gs(name)) {
            block(graph->block(), where);
          }
          break;
        case AttributeKind::ty:
          type(node->ty(name), where);
          break;
        case AttributeKind::tys:
          for (const auto& of : node->tys(name)) {
            type(of, where);
          }
          break;
        case AttributeKind::ival:
          value(node->ival(name), where);
          break;
        default:
          // Numbers, texts and tensors.
          break;
      }
    }
    for (Block* inner : node->blocks()) {
      block(inner, where);
    }
  }

  void values(at::ArrayRef<torch::jit::Value*> all, const std::string& where) {
    for (const torch::jit::Value* value : all) {
      type(value->type(), where);
    }
  }

  void type(const c10::TypePtr& of, const std::string& where) {
    if (!types_.insert(of).second) {
      return;
    }
    if (auto function = of->cast<c10::FunctionType>()) {
      later(function->function());
    }
    if (auto object = of->cast<c10::ClassType>()) {
      std::string name = object->name() ? object->name()->qualifiedName() : "";
      if (name.rfind(BUILT_IN, 0) == 0 && !is_listed_class(name)) {
        throw std::runtime_error(where + " has a value of " + name + ", which is not among the classes that models may use");
      }
      for (const auto* all : {&object->methods(), &object->getForwardHooks(), &object->getForwardPreHooks()}) {
        for (Function* method : *all) {
          later(method);
        }
      }
    }
    for (const auto& part : of->containedTypes()) {
      type(part, where);
    }
  }

  void value(const IValue& of, const std::string& where) {
    of.visit([&](const IValue& part) {
      bool is_listed = part.isNone() || part.isTensor() || part.isScalar() || part.isString() || part.isTuple() || part.isList() ||
          part.isGenericDict() || part.isObject() || part.isCapsule() || part.isDevice() || part.isEnum();
      if (!is_listed) {
        throw std::runtime_error(where + " has a value that models may not have: " + part.tagKind());
      }
      if (part.isObject()) {
        type(part.type(), where);
      }
      return false;
    });
  }
};

} // namespace

void only_listed_operators(const torch::jit::Module& module) {
  Look().module(module);
}

extern "C" {

// The schemas of all operators that libtorch has, a line each, to be freed. For the test of the list.
char* spillgate_schemas() {
  std::ostringstream all;
  for (const auto& op : torch::jit::getAllOperators()) {
    all << op->schema() << '\n';
  }
  return strdup(all.str().c_str());
}

} // extern "C"
