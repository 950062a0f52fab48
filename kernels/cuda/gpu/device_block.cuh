#pragma once

#include "kernels/cuda/portable.hpp"

/// A block of threads on the device: emulated_block.hpp's interface, which says what it promises.
namespace outrider::kernels::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define OUTRIDER_WGMMA
#endif

#if defined(OUTRIDER_WGMMA)
/// A matrix in shared memory as wgmma takes it: rows of 128 bytes, their pieces of 16 swizzled.
__device__ __forceinline__ uint64_t swizzled_128_bytes(uint32_t address) {
  constexpr uint64_t k_rows_of_8 = uint64_t{1024 / 16} << 32, k_swizzle = uint64_t{1} << 62;
  return (address & 0x3FFFF) / 16 | k_rows_of_8 | k_swizzle;
}
/// c [64, 8 NT] (+)= a [64, 16] b [16, 8 NT] of four warps.
template <uint32_t NT>
__device__ __forceinline__ void wgmma_rows(float* c, const uint32_t* a, uint64_t b, bool adds) {
  static_assert(NT == 2 || NT == 4 || NT == 8 || NT == 16);
  if constexpr (NT == 2) {
    asm volatile(
        "{.reg .pred adds; setp.ne.b32 adds, %13, 0; "
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7}, "
        "{%8, %9, %10, %11}, %12, adds, 1, 1, 0;}"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
          "+f"(c[7])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)));
  }
  if constexpr (NT == 4) {
    asm volatile(
        "{.reg .pred adds; setp.ne.b32 adds, %21, 0; "
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15}, "
        "{%16, %17, %18, %19}, %20, adds, 1, 1, 0;}"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
          "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]),
          "+f"(c[14]), "+f"(c[15])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)));
  }
  if constexpr (NT == 8) {
    asm volatile(
        "{.reg .pred adds; setp.ne.b32 adds, %37, 0; "
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, adds, 1, 1, 0;}"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
          "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]),
          "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]),
          "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]),
          "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)));
  }
  if constexpr (NT == 16) {
    asm volatile(
        "{.reg .pred adds; setp.ne.b32 adds, %69, 0; "
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, "
        "%56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, adds, 1, 1, 0;}"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
          "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]),
          "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]),
          "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]),
          "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), "+f"(c[32]), "+f"(c[33]), "+f"(c[34]),
          "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]), "+f"(c[41]),
          "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]),
          "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]),
          "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]),
          "+f"(c[63])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)));
  }
}
#endif

class DeviceBlock {
 public:
  template <class T>
  class Local {
   public:
    __device__ __forceinline__ T& operator[](uint32_t) { return value_; }

   private:
    T value_;
  };

  template <class T>
  class Shared {
   public:
    __device__ __forceinline__ explicit Shared(std::byte* data) : data_(data) {}
    __device__ __forceinline__ T load(size_t i) const {
      return reinterpret_cast<const T*>(data_)[i];
    }
    __device__ __forceinline__ void store(size_t i, const T& value) const {
      reinterpret_cast<T*>(data_)[i] = value;
    }
    template <class V>
    __device__ __forceinline__ V load_as_type(size_t bytes) const {
      return *reinterpret_cast<const V*>(data_ + bytes);
    }
    __device__ __forceinline__ uint32_t address(size_t bytes) const {
      return static_cast<uint32_t>(__cvta_generic_to_shared(data_ + bytes));
    }
    __device__ __forceinline__ void copy_async(size_t bytes, const void* from) const {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address(bytes)), "l"(from)
                   : "memory");
    }

   private:
    std::byte* data_;
  };

  __device__ __forceinline__ uint32_t x() const { return blockIdx.x; }
  __device__ __forceinline__ uint32_t y() const { return blockIdx.y; }
  __device__ __forceinline__ uint32_t z() const { return blockIdx.z; }
  __device__ __forceinline__ uint32_t count() const { return blockDim.x; }

  template <class T>
  __device__ __forceinline__ Local<T> local() {
    return {};
  }
  template <class T>
  __device__ __forceinline__ Shared<T> shared(size_t count) {
    extern __shared__ __align__(1024) std::byte outrider_shared[];
    const size_t offset = taken_;
    taken_ += (count * sizeof(T) + 15) / 16 * 16;
    return Shared<T>(outrider_shared + offset);
  }

  template <class Body>
  __device__ __forceinline__ void threads(const Body& body) {
    body(threadIdx.x);
  }
  __device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  }
  __device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
  }
  __device__ __forceinline__ void barrier() {
    __syncthreads();
  }

  __device__ __forceinline__ void end_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  template <uint32_t left>
  __device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
  }

  __device__ __forceinline__ void warp_sum(Local<float>& values) {
    float& value = values[0];
    for (int apart = 16; apart > 0; apart /= 2) {
      value += __shfl_xor_sync(0xFFFFFFFFu, value, apart);
    }
  }
  __device__ __forceinline__ void warp_max(Local<uint32_t>& values) {
    values[0] = __reduce_max_sync(0xFFFFFFFFu, values[0]);
  }

  template <uint32_t lanes>
  __device__ __forceinline__ void group_max(Local<float>& values) {
    float& value = values[0];
    for (int apart = lanes / 2; apart > 0; apart /= 2) {
      value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, apart));
    }
  }
  template <class LaneOf>
  __device__ __forceinline__ void take_from_lane(Local<uint32_t>& values, const LaneOf& lane_of) {
    values[0] = __shfl_sync(0xFFFFFFFFu, values[0], lane_of(threadIdx.x));
  }
  __device__ __forceinline__ bool any(Local<uint32_t>& values) {
    return __any_sync(0xFFFFFFFFu, values[0] != 0) != 0;
  }

  __device__ __forceinline__ void prefetch(const std::byte* from, uint32_t bytes) const {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
  }
  template <uint32_t count>
  __device__ __forceinline__ void keep_here(uint32_t* words) const {
    OUTRIDER_UNROLL
    for (uint32_t i = 0; i < count; ++i) asm volatile("" : "+r"(words[i]));
  }

#if __CUDA_ARCH__ >= 900
  /// By the copy engine, which a barrier in shared memory for each stage waits for.
  template <uint32_t stages, uint32_t ahead>
  class Copies {
   public:
    __device__ __forceinline__ explicit Copies(DeviceBlock& block)
        : barriers_(block.shared<Words4>(stages).address(0)) {
      if (threadIdx.x == 0) {
        for (uint32_t s = 0; s < stages; ++s) {
          asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier(s)) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      }
      __syncthreads();
    }
    template <class T>
    __device__ __forceinline__ void start(uint32_t stage, const Shared<T>& to, size_t at,
                                          const void* from, uint32_t bytes) const {
      if (threadIdx.x != 0) return;
      asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier(stage)),
                   "r"(bytes)
                   : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
          "[%3];" ::"r"(to.address(at)),
          "l"(from), "r"(bytes), "r"(barrier(stage))
          : "memory");
    }
    __device__ __forceinline__ void close(uint32_t stage) const {
      if (threadIdx.x != 0) return;
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier(stage)) : "memory");
    }
    __device__ __forceinline__ void wait(uint32_t stage, uint32_t turn) const {
      asm volatile(
          "{.reg .pred there; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1; "
          "@!there bra AGAIN;}" ::"r"(barrier(stage)),
          "r"(turn % 2)
          : "memory");
    }

   private:
    __device__ __forceinline__ uint32_t barrier(uint32_t stage) const {
      return barriers_ + stage * 16;
    }

    uint32_t barriers_;
  };
#else
  /// By all threads; stages are waited for in the order in which they were closed.
  template <uint32_t stages, uint32_t ahead>
  class Copies {
   public:
    __device__ __forceinline__ explicit Copies(DeviceBlock& block) : block_(block) {
      (void)block.shared<Words4>(stages);
    }
    template <class T>
    __device__ __forceinline__ void start(uint32_t, const Shared<T>& to, size_t at,
                                          const void* from, uint32_t bytes) const {
      for (uint32_t i = threadIdx.x * 16; i < bytes; i += blockDim.x * 16) {
        to.copy_async(at + i, static_cast<const std::byte*>(from) + i);
      }
    }
    __device__ __forceinline__ void close(uint32_t) const { block_.end_copies(); }
    __device__ __forceinline__ void wait(uint32_t, uint32_t) const {
      block_.wait_for_copies<ahead - 1>();
    }

   private:
    DeviceBlock& block_;
  };
#endif

  /// Nothing that uses the sums moves across it: the compiler would have to end the product there.
  template <uint32_t NT>
  __device__ __forceinline__ void hold_sums(float* c) const {
    OUTRIDER_UNROLL
    for (uint32_t i = 0; i < 4 * NT; ++i) asm volatile("" : "+f"(c[i])::"memory");
  }
  template <uint32_t NT, class Rows, class A, class C>
  __device__ __forceinline__ void start_rows_mma(const Rows& rows, uint32_t at, uint32_t step,
                                                 bool first, const A& a_of, const C& c_of) {
    const uint32_t* const a = a_of(threadIdx.x);
    float* const c = c_of(threadIdx.x);
#if defined(OUTRIDER_WGMMA)
    if (first) hold_sums<NT>(c);
    if (step == 0) asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    wgmma_rows<NT>(c, a, swizzled_128_bytes(rows.address(at) + 32 * step), !first);
#else
    const uint32_t lane = threadIdx.x % 32;
    OUTRIDER_UNROLL
    for (uint32_t nt = 0; nt < NT; ++nt) {
      float* const of_tile = c + 4 * nt;
      if (first) of_tile[0] = of_tile[1] = of_tile[2] = of_tile[3] = 0;
      const uint32_t row = 8 * nt + lane / 4;
      uint32_t b[2];
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        b[i] = rows.template load_as_type<uint32_t>(
            at + row * 128 + swizzled_piece(row, 2 * step + i) * 16 + lane % 4 * 4);
      }
      mma([](uint32_t) { return true; }, [&](uint32_t) { return a; },
          [&](uint32_t) -> const uint32_t* { return b; }, [&](uint32_t) { return of_tile; });
    }
#endif
  }
  __device__ __forceinline__ void commit_rows_mma() {
#if defined(OUTRIDER_WGMMA)
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
  }
  template <uint32_t NT, uint32_t left, class C>
  __device__ __forceinline__ void finish_rows_mma(const C& c_of) {
#if defined(OUTRIDER_WGMMA)
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
    if constexpr (left == 0) hold_sums<NT>(c_of(threadIdx.x));
#endif
  }

  template <class Active, class A, class B, class C>
  __device__ __forceinline__ void mma(const Active& active, const A& a_of, const B& b_of,
                                      const C& c_of) {
    const uint32_t thread = threadIdx.x;
    if (!active(thread)) return;
    const uint32_t* const a = a_of(thread);
    const uint32_t* const b = b_of(thread);
    float* const c = c_of(thread);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }

 private:
  size_t taken_ = 0;
};

}  // namespace outrider::kernels::cuda
