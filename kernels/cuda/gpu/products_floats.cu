#include "kernels/cuda/gpu/products.cuh"

OUTRIDER_PRODUCTS(f16);
OUTRIDER_PRODUCTS(bf16);
OUTRIDER_PRODUCTS(f32);
