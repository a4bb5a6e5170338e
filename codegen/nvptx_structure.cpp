// The kernel function, its interface, and structured control flow.
//
// void entry(parameters in the order of the slots): the entry block reads the thread's place and
// computes the top-level scalars again, then the region follows.
#include <fmt/format.h>
#include <llvm/IR/DebugInfoMetadata.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <set>

#include "codegen/bulk_copy_impl.h"
#include "codegen/host_impl.h"
#include "codegen/nvptx_assembly_impl.h"
#include "codegen/nvptx_copy_impl.h"
#include "codegen/nvptx_emit_impl.h"
#include "codegen/nvptx_memory_impl.h"
#include "codegen/nvptx_ops_impl.h"
#include "codegen/nvptx_words_impl.h"
#include "ir/error.h"
#include "ir/layout/fragments.h"
#include "ir/layout/text.h"
#include "ir/walk.h"

namespace kiln::nvptx {
namespace {

// The tensors that are written while a launch runs: by it and, if it begins early, by the others.
std::set<Value> written_tensors(const Kernel& kernel, const Op& launch, bool early) {
  std::set<Value> written;
  for (OpId id : kernel.region(kernel.body).ops) {
    const Op& other = kernel.op(id);
    if (other.code != OpCode::Launch || (&other != &launch && !early)) continue;
    for (const Access& access : accesses_deep(kernel, other))
      if (access.effect != Effect::Read) written.insert(access.base);
  }
  return written;
}

bool has_op(const Kernel& kernel, OpCode code) {
  bool found = false;
  walk(kernel, kernel.body, [&](OpId id) { found |= kernel.op(id).code == code; });
  return found;
}

// What body() computes from the thread's place is computed there, not before a loop around it.
template <class Body>
void anew(Builder& b, Val& lane, Val& warp, Body&& body) {
  const Val lane_before = lane, warp_before = warp;
  const auto here = [&](Val place) {
    return llvm::isa<llvm::Constant>(place) ? place : held_here(b, std::span(&place, 1))[0];
  };
  const Val lane_here = lane = here(lane), warp_here = warp = here(warp);
  body();
  lane = lane_before;
  warp = warp_before;
  for (Val held : {lane_here, warp_here}) {
    auto* instruction = llvm::dyn_cast<llvm::Instruction>(held);
    // Without uses it is only in the way of a branch becoming a select.
    if (instruction && instruction->use_empty()) instruction->eraseFromParent();
  }
}

}  // namespace

Emitter::Emitter(const Kernel& kernel, const GpuTarget& target, llvm::Module& module)
    : b(module, target, kernel.fast_math), kernel_(kernel), ranges_(kernel) {}

std::shared_ptr<const Layout> Emitter::layout(const std::string& text) {
  auto& known = layouts_[text];
  if (!known) known = std::make_shared<const Layout>(parse_layout(text));
  return known;
}

// A launch may begin when all blocks of the one before it have begun, and waits for their end
// before it touches memory: blocks are scheduled, and their code fetched, while the last ones still
// run (PTX ISA, griddepcontrol). Since each waits, one that has ended has all before it ended.
void Emitter::overlap_launches(const Neighbours& neighbours) {
  if (neighbours.after) assembly(b, "griddepcontrol.launch_dependents;", "", {}, {});
  if (neighbours.before) assembly(b, "griddepcontrol.wait;", "~{memory}", {}, {});
}

GpuLaunch Emitter::emit(const Op& launch, const std::string& entry, const Neighbours& neighbours) {
  auto& ir = b.ir;
  const int64_t warps = launch.integer("warps");
  agent_ = {0, warps, false, 0};
  if (warps < 1) throw InternalError(launch.loc, "the launch has no number of warps");
  GpuLaunch made{entry, slots_of(kernel_, launch), static_cast<int>(32 * warps),
                 static_cast<int>(launch.integer("shared")),
                 neighbours.before && b.target.has_early_launches()};

  std::vector<llvm::Type*> types;
  for (const Slot& slot : made.slots)
    types.push_back(slot.kind == Slot::Kind::Map ? static_cast<llvm::Type*>(ir.getPtrTy())
                    : slot.kind == Slot::Kind::Pointer
                        ? static_cast<llvm::Type*>(ir.getPtrTy(kGlobal))
                        : ir.getInt64Ty());
  auto* function = llvm::Function::Create(llvm::FunctionType::get(ir.getVoidTy(), types, false),
                                          llvm::Function::ExternalLinkage, entry, b.module);
  function->setCallingConv(llvm::CallingConv::PTX_Kernel);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  function->addFnAttr("nvvm.reqntid", fmt::format("{},1,1", made.threads));
  if (b.fast) function->addFnAttr("denormal-fp-math-f32", "preserve-sign");
  start_launch(launch, *function);
  start_locations(launch, *function);
  ir.SetInsertPoint(llvm::BasicBlock::Create(ir.getContext(), "entry", function));

  if (b.target.has_early_launches()) overlap_launches(neighbours);
  set_place(b.call(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, {}));
  if (made.shared_bytes > 0) {
    auto* bytes = llvm::ArrayType::get(ir.getInt8Ty(), 0);
    auto* variable = new llvm::GlobalVariable(
        b.module, bytes, false, llvm::GlobalValue::ExternalLinkage, nullptr, entry + "_shared",
        nullptr, llvm::GlobalValue::NotThreadLocal, kShared);
    variable->setAlignment(llvm::Align(1024));
    shared_ = variable;
  }
  emit_interface(launch, made.slots, *function, made.early);
  static constexpr llvm::Intrinsic::ID kBlock[] = {llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x,
                                                   llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_y,
                                                   llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_z};
  const Region& region = kernel_.region(launch.regions[0]);
  for (size_t axis = 0; axis < region.args.size(); ++axis)
    set(region.args[axis], b.call(kBlock[axis], {}));
  grid_axes_ = region.args.size();
  body_ = launch.regions[0];
  emit_region(body_);
  if (!roles_op(kernel_, launch)) finish_stores();
  ir.CreateRetVoid();
  return made;
}

void Emitter::emit_interface(const Op& launch, const std::vector<Slot>& slots,
                             llvm::Function& function, bool early) {
  auto& ir = b.ir;
  auto argument = [&](Slot::Kind kind, const std::string& name, int axis = 0) {
    return argument_of(slots, {kind, name, axis}, function);
  };
  for (const BulkOp& copy : bulk_ops(kernel_, launch)) {
    llvm::Argument* map = argument_of(slots, copy.slot, function);
    llvm::LLVMContext& context = ir.getContext();
    auto* bytes = llvm::ArrayType::get(ir.getInt8Ty(), kTensorMapBytes);
    llvm::AttrBuilder marks(context);
    marks.addByValAttr(bytes).addAlignmentAttr(llvm::Align(kTensorMapAlignment));
    marks.addAttribute("nvvm.grid_constant");  // else it is copied to local memory
    map->addAttrs(marks);
    maps_[copy.op] = map;
  }
  const std::set<Value> written = written_tensors(kernel_, launch, early);
  for (OpId id : interface_of(kernel_, launch)) {
    const Op& op = kernel_.op(id);
    switch (op.code) {
      case OpCode::Dim:
        set(op.result, ir.CreateTrunc(argument(Slot::Kind::Dim, op.word("name")), ir.getInt32Ty()));
        break;
      case OpCode::Param: {
        const DType dtype = kernel_.type(op.result).dtype;
        Val bits = argument(Slot::Kind::Param, op.word("name"));
        bits = ir.CreateTrunc(bits, ir.getIntNTy(static_cast<unsigned>(8 * size_of(dtype))));
        set(op.result, b.from_memory(ir.CreateBitCast(bits, b.memory_type(dtype)), dtype));
        break;
      }
      case OpCode::Tensor: {
        const std::string& name = op.word("name");
        llvm::Argument* pointer = argument(Slot::Kind::Pointer, name);
        const size_t bytes = size_of(kernel_.type(op.result).dtype);
        function.addParamAttr(pointer->getArgNo(), llvm::Attribute::getWithAlignment(
                                                       ir.getContext(), llvm::Align(bytes)));
        // Of what nobody writes, loads may go through the read-only path and move over barriers;
        // `noalias` on the others would let LLVM move their accesses too.
        if (!written.contains(op.result)) {
          function.addParamAttr(pointer->getArgNo(), llvm::Attribute::NoAlias);
          function.addParamAttr(pointer->getArgNo(), llvm::Attribute::ReadOnly);
        }
        Place place = tensor_place(op);
        place.pointer = pointer;
        Val mixed = ir.CreatePtrToInt(pointer, ir.getInt64Ty());
        for (size_t axis = 0; axis + 1 < place.axes.size(); ++axis) {
          Val stride = argument(Slot::Kind::Stride, name, static_cast<int>(axis));
          place.axes[axis].stride = stride;
          mixed = ir.CreateOr(mixed, ir.CreateMul(stride, b.i64(static_cast<int64_t>(bytes))));
        }
        place.aligned = ir.CreateICmpEQ(ir.CreateAnd(mixed, b.i64(15)), b.i64(0));
        places_[op.result.id] = std::move(place);
        break;
      }
      default: emit_op(op);
    }
  }
}

llvm::Argument* Emitter::argument_of(const std::vector<Slot>& slots, const Slot& slot,
                                     llvm::Function& function) {
  const auto it = std::ranges::find(slots, slot);
  if (it == slots.end()) throw InternalError("no slot for '" + slot.name + "'");
  return function.getArg(static_cast<unsigned>(it - slots.begin()));
}

void Emitter::start_locations(const Op& launch, llvm::Function& function) {
  if (!launch.loc.known()) return;
  // Directives alone: with more, PTX says `.target …, debug` and ptxas stops optimising.
  debug_ = std::make_unique<llvm::DIBuilder>(b.module);
  llvm::DIFile* file = location_file(launch.loc.file);
  debug_->createCompileUnit(llvm::dwarf::DW_LANG_C_plus_plus, file, "kiln", true, "", 0, "",
                            llvm::DICompileUnit::DebugDirectivesOnly);
  auto* type = debug_->createSubroutineType(debug_->getOrCreateTypeArray({}));
  scope_ = debug_->createFunction(file, function.getName(), function.getName(), file,
                                  static_cast<unsigned>(launch.loc.line), type, 0,
                                  llvm::DINode::FlagZero, llvm::DISubprogram::SPFlagDefinition);
  function.setSubprogram(scope_);
  if (!b.module.getModuleFlag("Debug Info Version"))
    b.module.addModuleFlag(llvm::Module::Warning, "Debug Info Version",
                           llvm::DEBUG_METADATA_VERSION);
  set_location(launch);
}

llvm::DIFile* Emitter::location_file(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return debug_->createFile(path, ".");
  return debug_->createFile(path.substr(slash + 1), path.substr(0, slash));
}

void Emitter::set_location(const Op& op) {
  if (!scope_ || !op.loc.known()) return;
  llvm::DIScope* scope = scope_;
  llvm::DIFile* file = location_file(op.loc.file);
  if (file != scope_->getFile()) scope = debug_->createLexicalBlockFile(scope_, file, 0);
  b.ir.SetCurrentDebugLocation(
      llvm::DILocation::get(b.ir.getContext(), static_cast<unsigned>(op.loc.line), 0, scope));
}

Val Emitter::scalar(Value value) {
  if (auto constant = constant_of(kernel_, value)) return b.constant(*constant);
  auto it = scalars_.find(value.id);
  if (it == scalars_.end()) throw InternalError("a scalar is used before its definition");
  return it->second;
}

Fragment& Emitter::fragment(Value tile) {
  auto it = fragments_.find(tile.id);
  if (it == fragments_.end()) throw InternalError("not a fragment of this thread");
  return it->second;
}

Fragment Emitter::new_fragment(DType dtype, std::shared_ptr<const Layout> layout) {
  const auto registers = static_cast<size_t>(layout->registers());
  return {dtype, std::move(layout), Values(registers, b.zero(dtype))};
}

void Emitter::barrier() {
  if (agent_.one_thread) return;
  if (agent_.barrier == 0) {
    b.call(llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_all, {b.i32(0)});
  } else {
    b.call(llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_count,
           {b.i32(agent_.barrier), b.i32(32 * agent_.warps)});
  }
}

void Emitter::emit_region(RegionId region) {
  // What is under way on entry may be awaited on one way through and not on another: later waits
  // count it again, which is one wait too many at most.
  const std::vector<Value> under_way = gemms_;
  const RegionId outer = std::exchange(region_, region);
  for (OpId id : kernel_.region(region).ops) emit_op(kernel_.op(id));
  for (Value token : gemms_)
    if (std::ranges::find(under_way, token) == under_way.end())
      throw UserError(kernel_.op(kernel_.def(token)).loc,
                      "a gemm_async is not awaited in its region");
  gemms_ = under_way;
  region_ = outer;
}

void Emitter::emit_op(const Op& op) {
  set_location(op);
  const std::vector<Value> packed = packed_operands(op);
  if (packed.empty()) return emit_one(op);
  on_elements(packed, [&] { emit_one(op); });
}

void Emitter::emit_one(const Op& op) {
  switch (op.code) {
    case OpCode::Const: return;  // scalar() makes it where it is used
    case OpCode::For: return emit_for(op);
    case OpCode::If: return emit_if(op);
    case OpCode::Parallel: return emit_parallel(op);
    case OpCode::Alloc: return emit_alloc(op);
    case OpCode::Reshape:
    case OpCode::Every:
    case OpCode::Slice:
      if (is_fragment(op.result)) throw InternalError(op.loc, "a slice of a fragment");
      places_.erase(op.result.id);  // of another round
      place(op.result);
      return;
    case OpCode::Copy: return emit_copy(op);
    case OpCode::Fill: return emit_fill(op);
    case OpCode::Load: return emit_load(op);
    case OpCode::Store: return emit_store(op);
    case OpCode::Atomic: return emit_atomic(op);
    case OpCode::DeviceAssert:  // became an atomic where somebody looks at it
    case OpCode::Watch: return;
    case OpCode::Gemm: return emit_gemm(op);
    case OpCode::Reduce: return emit_reduce(op);
    case OpCode::Convert: return emit_convert(op);
    case OpCode::Barrier:
      // wgmma reads shared memory by another way, which sees only what was fenced before.
      if (has_op(kernel_, OpCode::GemmAsync))
        b.call(llvm::Intrinsic::nvvm_fence_proxy_async_shared_cta, {});
      return barrier();
    case OpCode::WaitCopies:
      b.call(llvm::Intrinsic::nvvm_cp_async_wait_group, {b.i32(op.integer("pending"))});
      return;
    case OpCode::CommitCopies: b.call(llvm::Intrinsic::nvvm_cp_async_commit_group, {}); return;
    case OpCode::Roles: return emit_roles(op);
    case OpCode::Loop: return emit_loop(op);
    case OpCode::ExitIf: return emit_exit_if(op);
    case OpCode::NextTile: return emit_next_tile(op);
    case OpCode::Channel: return emit_channel(op);
    case OpCode::PushBegin:
    case OpCode::PushEnd:
    case OpCode::Pop:
    case OpCode::Held:
    case OpCode::Message:
    case OpCode::Release: return emit_channel_op(op);
    case OpCode::CopyAsync: return emit_copy_async(op);
    case OpCode::StoreAsync: return emit_store_async(op);
    case OpCode::AwaitStores: return emit_await_stores(op);
    case OpCode::GemmAsync: return emit_gemm_async(op);
    case OpCode::Await: return emit_await(op);
    case OpCode::SoftmaxStep: return emit_softmax_step(op);
    case OpCode::ScaleRows: return emit_scale_rows(op);
    default: break;
  }
  if (!info(op.code).pure)
    throw InternalError(op.loc, fmt::format("the GPU tier cannot emit '{}'", info(op.code).name));
  Values operands;
  for (Value operand : op.operands) operands.push_back(scalar(operand));
  set(op.result, scalar_op(b, kernel_, op, operands));
}

void Emitter::emit_alloc(const Op& op) {
  const Type& type = kernel_.type(op.result);
  const std::string& text = op.word("layout");
  const bool variable = type.rank() == 0;  // the same in all threads
  if (text.empty() && !variable)
    throw InternalError(op.loc, fmt::format("{} has no layout", str(type)));
  if (type.space == Space::Fragment) {
    Fragment made =
        new_fragment(type.dtype, text.empty() ? std::make_shared<const Layout>(0) : layout(text));
    if (is_packed(op.result, *made.layout)) {
      made.registers.assign(made.registers.size() / static_cast<size_t>(per_word(type.dtype)),
                            b.i32(0));
      made.packed = true;
    }
    // Nothing to set where nothing is loaded.
    if (waits_only(kernel_, op.result))
      for (Val& reg : made.registers) reg = llvm::PoisonValue::get(reg->getType());
    fragments_.insert_or_assign(op.result.id, std::move(made));
    return;
  }
  if (op.integer("offset") < 0 || !shared_)
    throw InternalError(op.loc, fmt::format("{} has no place in shared memory", str(type)));
  Place place;
  place.dtype = type.dtype;
  place.space = Space::Shared;
  place.layout = layout(text);
  place.pointer = b.ir.CreateConstGEP1_32(b.ir.getInt8Ty(), shared_,
                                          static_cast<unsigned>(op.integer("offset")));
  for (int64_t extent : type.shape) place.axes.push_back(whole_axis(b, extent));
  places_[op.result.id] = std::move(place);
}

std::vector<Value> Emitter::written_outside(const Op& op) {
  std::set<Value> written;
  for (const Access& access : accesses_deep(kernel_, op))
    if (access.effect != Effect::Read && fragments_.contains(access.base.id))
      written.insert(access.base);
  return {written.begin(), written.end()};
}

void Emitter::set_place(Val thread) {
  lane_ = b.ir.CreateAnd(thread, b.i32(31));
  warp_ = agent_.warps == 1 ? b.i32(0) : b.ir.CreateLShr(thread, b.i32(5));
}

// Computed from a new reading of the thread's number, nothing is kept in registers from before to
// behind a loop that needs them all. Roles hold theirs (emit_branch).
void Emitter::read_place_anew() {
  if (agent_.barrier != 0 || agent_.one_thread) return;
  llvm::Type* word = b.ir.getInt32Ty();
  const Val thread = assembly(b, "mov.u32 \t$0, %tid.x;", "=r", std::span(&word, 1), {})[0];
  const uint64_t most = std::bit_ceil(static_cast<uint64_t>(32 * agent_.warps)) - 1;
  set_place(b.ir.CreateAnd(thread, b.i32(static_cast<int64_t>(most))));
}

// Is it a loop full of fragments?
bool Emitter::multiplies(const Op& op) const {
  if (op.code != OpCode::For) return false;
  bool found = false;
  walk(kernel_, op.regions[0],
       [&](OpId inner) { found |= kernel_.op(inner).code == OpCode::Gemm; });
  return found;
}

void Emitter::emit_for(const Op& op) {
  auto& ir = b.ir;
  const std::vector<OpId>& inside = kernel_.region(op.regions[0]).ops;
  const bool has_busy_loop = std::any_of(inside.begin(), inside.end(),
                                         [&](OpId id) { return multiplies(kernel_.op(id)); });
  // 64 bits if the index may pass 2^31 before it passes the end.
  const Interval to = ranges_.of(op.operands[1]), by = ranges_.of(op.operands[2]);
  const bool far = to.high + std::max<int64_t>(by.high, 0) > std::numeric_limits<int32_t>::max();
  const auto wide = [&](size_t operand) {
    Val value = scalar(op.operands[operand]);
    return far ? ir.CreateSExt(value, ir.getInt64Ty()) : value;
  };
  Val begin = wide(0), end = wide(1), step = wide(2);
  // A step that is not positive would never end; such a loop runs nothing.
  if (!llvm::isa<llvm::ConstantInt>(step))
    end = ir.CreateSelect(ir.CreateICmpSGT(step, llvm::ConstantInt::get(step->getType(), 0)), end,
                          begin);
  const std::vector<Value> tiles = written_outside(op);
  const bool was_busy = std::exchange(busy_, busy_ || multiplies(op));
  Values after = b.loop(begin, end, step, registers_of(tiles), [&](Val index, const Values& now) {
    set_registers(tiles, now);
    set(kernel_.region(op.regions[0]).args[0],
        far ? ir.CreateTrunc(index, ir.getInt32Ty()) : index);
    if (has_busy_loop) read_place_anew();
    emit_scope(op.regions[0]);
    return registers_of(tiles);
  });
  set_registers(tiles, after);
  busy_ = was_busy;
  if (multiplies(op)) read_place_anew();
}

void Emitter::emit_if(const Op& op) {
  const std::vector<Value> tiles = written_outside(op);
  const Values before = registers_of(tiles);
  auto branch = [&](size_t which) {
    set_registers(tiles, before);
    if (which >= op.regions.size()) return registers_of(tiles);
    Ranges::Known known = which == 0 ? ranges_.assume(op.operands[0]) : Ranges::Known{};
    emit_branch(op.regions[which]);
    if (which == 0) ranges_.restore(std::move(known));
    return registers_of(tiles);
  };
  set_registers(tiles,
                b.when(
                    scalar(op.operands[0]), [&] { return branch(0); }, [&] { return branch(1); }));
}

// The registers of a role, or in a busy loop, are full of tiles: what a branch computes from the
// thread's place, such as the columns of a mask, must not be computed before the loop around it and
// kept.
void Emitter::emit_branch(RegionId region) {
  const bool is_role = agent_.barrier != 0;
  if ((!is_role && !busy_) || agent_.one_thread) return emit_scope(region);
  anew(b, lane_, warp_, [&] { emit_scope(region); });
}

// Tiles of a region end with it: an outer op does not carry their registers around.
void Emitter::emit_scope(RegionId region) {
  const Val lane = lane_, warp = warp_;
  emit_region(region);
  lane_ = lane, warp_ = warp;  // not as they were read inside
  for (OpId id : kernel_.region(region).ops) {
    const Op& op = kernel_.op(id);
    if (op.code == OpCode::Alloc) fragments_.erase(op.result.id);
  }
}

Values Emitter::registers_of(std::span<const Value> tiles) {
  Values all;
  for (Value tile : tiles) {
    const Values& registers = fragment(tile).registers;
    all.insert(all.end(), registers.begin(), registers.end());
  }
  return all;
}

void Emitter::set_registers(std::span<const Value> tiles, std::span<const Val> registers) {
  size_t next = 0;
  for (Value tile : tiles)
    for (Val& reg : fragment(tile).registers) reg = registers[next++];
}

}  // namespace kiln::nvptx
