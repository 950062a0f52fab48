#pragma once

// For tests on Linux, x86-64: the machine code of the AMX kernels on a CPU that has no AMX. An
// unknown instruction raises SIGILL; the handler takes the seven that the kernels use apart and has
// `Tiles` (amx_emulation.inl.hpp) do them.
#if defined(__linux__) && defined(__x86_64__)
#include <signal.h>
#include <ucontext.h>

#include <cstdint>
#include <cstring>

namespace outrider::kernels {

/// While it lives, all threads of the process run AMX instructions.
template <class Tiles, class TileConfig>
class AmxTraps {
 public:
  AmxTraps() {
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, &before_);
  }
  ~AmxTraps() { sigaction(SIGILL, &before_, nullptr); }
  AmxTraps(const AmxTraps&) = delete;
  AmxTraps& operator=(const AmxTraps&) = delete;

 private:
  static uint64_t value(const ucontext_t& context, size_t number) {
    static constexpr int k_registers[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                            REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                            REG_R12, REG_R13, REG_R14, REG_R15};
    return static_cast<uint64_t>(context.uc_mcontext.gregs[k_registers[number]]);
  }

  /// The address of a memory operand; `at` is its ModRM byte and moves behind it.
  static std::byte* operand(const ucontext_t& context, const uint8_t*& at, uint8_t vex,
                            uint64_t& stride) {
    const uint8_t mode = *at >> 6;
    uint8_t base = *at++ & 7;
    const bool has_sib = base == 4;
    bool has_index = false;
    if (has_sib) {
      const auto index = static_cast<size_t>((*at >> 3 & 7) | (vex & 0x40 ? 0 : 8));
      has_index = index != 4;
      if (has_index) stride = value(context, index) << (*at >> 6);
      base = *at++ & 7;
    }
    int32_t displacement = 0;
    const bool from_ip = !has_sib && mode == 0 && base == 5;
    const bool no_base = has_sib && mode == 0 && base == 5;
    if (mode == 1) displacement = static_cast<int8_t>(*at++);
    if (mode == 2 || from_ip || no_base) {
      std::memcpy(&displacement, at, 4);
      at += 4;
    }
    uint64_t address = from_ip   ? reinterpret_cast<uint64_t>(at)
                       : no_base ? 0
                                 : value(context, base | (vex & 0x20 ? 0u : 8u));
    address += static_cast<uint64_t>(static_cast<int64_t>(displacement));
    return reinterpret_cast<std::byte*>(address);
  }

  /// VEX.128.pp.0F38.W0 and one of three opcodes.
  static void handle(int, siginfo_t*, void* raw) {
    auto& context = *static_cast<ucontext_t*>(raw);
    const auto* at = reinterpret_cast<const uint8_t*>(context.uc_mcontext.gregs[REG_RIP]);
    Tiles::fault_unless(at[0] == 0xC4 && (at[1] & 0x1F) == 2 && (at[2] & 0x84) == 0);
    const uint8_t vex = at[1];
    const uint8_t prefix = at[2] & 3;  // none, 66, F3, F2
    const size_t third = 15u - (at[2] >> 3 & 15u);
    const uint8_t opcode = at[3];
    at += 4;
    const size_t reg = *at >> 3 & 7;
    const size_t rm = *at & 7;
    const bool is_memory = *at >> 6 != 3;
    uint64_t stride = 0;
    std::byte* memory = is_memory ? operand(context, at, vex, stride) : nullptr;
    if (!is_memory) ++at;
    if (opcode == 0x49 && prefix == 0 && is_memory && reg == 0) {
      TileConfig config;
      std::memcpy(&config, memory + stride, sizeof config);  // here the index is one like any
      Tiles::configure(config);
    } else if (opcode == 0x49 && prefix == 0 && !is_memory && reg == 0 && rm == 0) {
      Tiles::release();
    } else if (opcode == 0x49 && prefix == 3 && !is_memory) {
      Tiles::zero(reg);
    } else if (opcode == 0x4B && prefix == 3 && is_memory) {
      Tiles::load(reg, memory, stride);
    } else if (opcode == 0x4B && prefix == 2 && is_memory) {
      Tiles::store(reg, memory, stride);
    } else {
      Tiles::fault_unless(opcode == 0x5E && (prefix == 3 || prefix == 1) && !is_memory);
      Tiles::dot(reg, rm, third, prefix == 3);
    }
    context.uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(at);
  }

  struct sigaction before_ = {};
};

}  // namespace outrider::kernels
#endif
