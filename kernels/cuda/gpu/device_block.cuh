#pragma once

#include "kernels/cuda/portable.hpp"

/// A block of threads on the device: emulated_block.hpp's interface, which says what it promises.
namespace outrider::kernels::cuda {

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
    __device__ __forceinline__ void copy_async(size_t bytes, const void* from) const {
      const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(data_ + bytes));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
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
    extern __shared__ __align__(16) std::byte outrider_shared[];
    const size_t offset = taken_;
    taken_ += (count * sizeof(T) + 15) / 16 * 16;
    return Shared<T>(outrider_shared + offset);
  }

  template <class Body>
  __device__ __forceinline__ void threads(const Body& body) {
    body(threadIdx.x);
  }
  __device__ __forceinline__ void barrier() { __syncthreads(); }

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
