// The ordered-neurons recurrence of one layer on a CPU: `ordered_neurons_native.py` calls it, `ordered_neurons.py` has
// the equations and the order of the gates' columns.
//
// One parallel region runs through the whole sequence. The recurrent weight is packed once into vectors of LANES output
// columns, each a stream over the summed dimension; every thread keeps its own columns at every step. The product of a
// step is made in register tiles, and the forward pass applies the pointwise equations to a tile before it leaves the
// registers. This file is compiled once for each instruction set, with the same names.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include <omp.h>
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16, MAX_ROWS = 6;
#elif defined(__AVX2__)
constexpr int LANES = 8, MAX_ROWS = 3;
#else
constexpr int LANES = 4, MAX_ROWS = 3;
#endif
constexpr int MAX_STREAMS = 4;
// Summed entries of a tile at a time, so that the weights it reads stay in the second-level cache for all rows.
constexpr int64_t BLOCK = 1536;
// How far ahead of its use a float32 weight is asked for; the CPU's own prefetching ends at each page.
constexpr int64_t AHEAD = 16;

using Vector = float __attribute__((vector_size(LANES * 4)));
using Integers = int32_t __attribute__((vector_size(LANES * 4)));
using Unsigned = uint32_t __attribute__((vector_size(LANES * 4)));
using Half = uint16_t __attribute__((vector_size(LANES * 2)));

struct BFloat16 {
    uint16_t bits;
};

float to_float(float value) { return value; }
float to_float(BFloat16 value) {
    const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
    float result;
    std::memcpy(&result, &bits, 4);
    return result;
}

template <class T>
T from_float(float value);
template <>
float from_float<float>(float value) {
    return value;
}
template <>
BFloat16 from_float<BFloat16>(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(bits >> 16 | 64)};  // stays NaN
    return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}

Vector broadcast(float value) { return value - Vector{}; }
Vector select(Integers condition, Vector yes, Vector no) { return condition ? yes : no; }

Vector load(const float* source) {
    Vector result;
    std::memcpy(&result, source, sizeof result);
    return result;
}
void store(float* target, Vector values) { std::memcpy(target, &values, sizeof values); }

Vector load(const BFloat16* source) {
    Half bits;
    std::memcpy(&bits, source, sizeof bits);
    return reinterpret_cast<Vector>(__builtin_convertvector(bits, Integers) << 16);
}
// Rounded to nearest even in the lower half of each entry; NaN stays NaN.
Unsigned bfloat16_bits(Vector values) {
    const Unsigned bits = reinterpret_cast<Unsigned>(values);
    const Unsigned rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return (bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 64 : rounded;
}
void store(BFloat16* target, Vector values) {
    const Half halves = __builtin_convertvector(bfloat16_bits(values), Half);
    std::memcpy(target, &halves, sizeof halves);
}

template <class T>
Vector load(const T* source, int64_t count) {
    if (count >= LANES) return load(source);
    T padded[LANES] = {};
    std::memcpy(padded, source, count * sizeof(T));
    return load(padded);
}
template <class T>
void store(T* target, Vector values, int64_t count) {
    if (count >= LANES) return store(target, values);
    T padded[LANES];
    store(padded, values);
    std::memcpy(target, padded, count * sizeof(T));
}

// Asks for some entries ahead of their use: at most a vector of them, which lies on one or two lines of the cache.
template <class T>
void fetch(const T* source, int64_t count) {
    __builtin_prefetch(source);
    __builtin_prefetch(source + count - 1);
}

// exp by 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]; NaN stays NaN.
Vector exponential(Vector x) {
    x = select(x < -87.0f, broadcast(-87.0f), x);
    x = select(x > 88.0f, broadcast(88.0f), x);
    const Vector shift = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    const Vector shifted = x * 1.44269504088896341f + shift;
    const Vector n = shifted - shift;
    const Vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    Vector p = broadcast(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const Integers exponent = (reinterpret_cast<Integers>(shifted) << 23) + (127 << 23);
    return p * reinterpret_cast<Vector>(exponent);
}

Vector sigmoid(Vector x) { return 1.0f / (1.0f + exponential(-x)); }

// tanh by a polynomial near 0, where 1 - 2 / (exp(2 x) + 1) would lose digits.
Vector hyperbolic_tangent(Vector x) {
    const Vector square = x * x;
    Vector p = broadcast(-5.70498872745e-3f);
    p = p * square + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    const Vector near = p * square * x + x;
    const Vector far = 1.0f - 2.0f / (exponential(2.0f * x) + 1.0f);
    return select(square < 0.390625f, near, far);
}

// Rows of the left operand and streams of the right one, in float32 or as pairs of bfloat16.
template <class Product>
struct Operand;
template <>
struct Operand<float> {
    static constexpr int PAIR = 1;
};
template <>
struct Operand<BFloat16> {
    static constexpr int PAIR = 2;
};

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

template <int ROWS, int STREAMS>
void multiply_tile(const float* left, int64_t stride, const float* const* streams, int64_t size, Vector* sums) {
    Vector sum[ROWS][STREAMS];
    for (int row = 0; row < ROWS; row++)
        for (int s = 0; s < STREAMS; s++) sum[row][s] = sums[row * STREAMS + s];
    for (int64_t k = 0; k < size; k++) {
        Vector right[STREAMS];
        for (int s = 0; s < STREAMS; s++) {
            __builtin_prefetch(streams[s] + (k + AHEAD) * LANES);
            right[s] = load(streams[s] + k * LANES);
        }
        for (int row = 0; row < ROWS; row++)
            for (int s = 0; s < STREAMS; s++) sum[row][s] += left[row * stride + k] * right[s];
    }
    for (int row = 0; row < ROWS; row++)
        for (int s = 0; s < STREAMS; s++) sums[row * STREAMS + s] = sum[row][s];
}

template <int ROWS, int STREAMS>
void multiply_tile(const BFloat16* left, int64_t stride, const BFloat16* const* streams, int64_t size, Vector* sums) {
    Vector sum[ROWS][STREAMS];
    for (int row = 0; row < ROWS; row++)
        for (int s = 0; s < STREAMS; s++) sum[row][s] = sums[row * STREAMS + s];
    for (int64_t k = 0; k < size; k += 2) {
        Integers right[STREAMS];
        for (int s = 0; s < STREAMS; s++) std::memcpy(&right[s], streams[s] + k * LANES, sizeof right[s]);
        for (int row = 0; row < ROWS; row++) {
            int32_t pair;
            std::memcpy(&pair, left + row * stride + k, 4);
#if defined(__AVX512BF16__)
            const __m512bh pairs = (__m512bh)_mm512_set1_epi32(pair);
            for (int s = 0; s < STREAMS; s++)
                sum[row][s] = (Vector)_mm512_dpbf16_ps((__m512)sum[row][s], pairs, (__m512bh)right[s]);
#else
            const Vector even = broadcast(to_float(left[row * stride + k]));
            const Vector odd = broadcast(to_float(left[row * stride + k + 1]));
            for (int s = 0; s < STREAMS; s++)
                sum[row][s] += even * reinterpret_cast<Vector>(right[s] << 16) +
                               odd * reinterpret_cast<Vector>(right[s] & static_cast<int32_t>(0xffff0000u));
            (void)pair;
#endif
        }
    }
    for (int row = 0; row < ROWS; row++)
        for (int s = 0; s < STREAMS; s++) sums[row * STREAMS + s] = sum[row][s];
}

template <class Product, int STREAMS>
void multiply_rows(int rows, const Product* left, int64_t stride, const Product* const* streams, int64_t size,
                   Vector* sums) {
    switch (rows) {
        case 1: return multiply_tile<1, STREAMS>(left, stride, streams, size, sums);
        case 2: return multiply_tile<2, STREAMS>(left, stride, streams, size, sums);
        case 3: return multiply_tile<3, STREAMS>(left, stride, streams, size, sums);
#if defined(__AVX512F__)
        case 4: return multiply_tile<4, STREAMS>(left, stride, streams, size, sums);
        case 5: return multiply_tile<5, STREAMS>(left, stride, streams, size, sums);
        case 6: return multiply_tile<6, STREAMS>(left, stride, streams, size, sums);
#endif
    }
}

template <class Product>
void multiply(int rows, int num_streams, const Product* left, int64_t stride, const Product* const* streams,
              int64_t size, Vector* sums) {
    switch (num_streams) {
        case 1: return multiply_rows<Product, 1>(rows, left, stride, streams, size, sums);
        case 2: return multiply_rows<Product, 2>(rows, left, stride, streams, size, sums);
        case 3: return multiply_rows<Product, 3>(rows, left, stride, streams, size, sums);
        case 4: return multiply_rows<Product, 4>(rows, left, stride, streams, size, sums);
    }
}

// Memory that is kept from call to call, each thread of the caller its own; the pages of fresh memory cost too much.
class Workspace {
   public:
    template <class T>
    T* take(int64_t count) {
        const size_t bytes = round_up(count * sizeof(T), 4096);
        if (next_ == blocks_.size()) blocks_.emplace_back();
        Block& block = blocks_[next_++];
        if (block.size < bytes) {
            block.memory.reset();
            block.memory.reset(static_cast<char*>(operator new(bytes, std::align_val_t(4096))));
            block.size = bytes;
        }
        return reinterpret_cast<T*>(block.memory.get());
    }
    void restart() { next_ = 0; }

   private:
    struct Delete {
        void operator()(char* memory) const { operator delete(memory, std::align_val_t(4096)); }
    };
    struct Block {
        std::unique_ptr<char, Delete> memory;
        size_t size = 0;
    };
    std::vector<Block> blocks_;
    size_t next_ = 0;
};

// A barrier that threads pass a few times in each step: they look rather than sleep, as the wait is short, and give
// way now and then in case that the thread they wait for needs their core.
class Barrier {
   public:
    void wait(int num_threads) {
        if (num_threads == 1) return;
        const int generation = generation_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads) {
            arrived_.store(0, std::memory_order_relaxed);
            generation_.store(generation + 1, std::memory_order_release);
            return;
        }
        for (int looks = 1; generation_.load(std::memory_order_acquire) == generation; looks++)
            if (looks % LOOKS == 0) std::this_thread::yield();
    }

   private:
    static constexpr int LOOKS = 4096;
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<int> generation_{0};
};

struct Range {
    int64_t begin, end;
};
Range share(int64_t count, int thread, int num_threads) {
    return {count * thread / num_threads, count * (thread + 1) / num_threads};
}

// Rows of a tile: as equal as can be, at most MAX_ROWS.
template <class Function>
void for_row_tiles(int64_t batch_size, Function function) {
    const int64_t tiles = (batch_size + MAX_ROWS - 1) / MAX_ROWS;
    for (int64_t tile = 0; tile < tiles; tile++) {
        const int64_t begin = batch_size * tile / tiles, end = batch_size * (tile + 1) / tiles;
        function(begin, static_cast<int>(end - begin));
    }
}

// The recurrent weight as it is used: what drop-connect leaves of it, times a factor.
struct Weight {
    const float* entries;
    const uint8_t* kept;  // may be null: all
    float scale;

    Vector operator()(int64_t index, int64_t count) const {
        const Vector values = load(entries + index, count) * scale;
        if (!kept) return values;
        using Bytes = uint8_t __attribute__((vector_size(LANES)));
        Bytes bytes{};
        std::memcpy(&bytes, kept + index, std::min<int64_t>(count, LANES));
        return select(__builtin_convertvector(bytes, Integers) != 0, values, Vector{});
    }
};

// A stream of LANES columns of the transposed weight: entry (k, lane) is weight[first + lane][k], where `lane` is below
// `count`, else 0. Transposed through a tile of 32-bit entries, each a float or a pair of bfloat16.
template <class Product>
void pack_rows(const Weight& weight, int64_t row_size, int64_t first, int64_t count, Product* stream) {
    constexpr int PAIR = Operand<Product>::PAIR, TILE = LANES * PAIR;
    int32_t tile[LANES][LANES] = {};
    for (int64_t k = 0; k < row_size; k += TILE) {
        for (int64_t lane = 0; lane < count; lane++)
            for (int part = 0; part < PAIR; part++) {
                const int64_t begin = k + part * LANES;
                const int64_t inside = std::clamp<int64_t>(row_size - begin, 0, LANES);
                store(reinterpret_cast<Product*>(tile[lane]) + part * LANES,
                      inside ? weight((first + lane) * row_size + begin, inside) : Vector{});
            }
        const int64_t entries = std::min<int64_t>(LANES, (row_size - k + PAIR - 1) / PAIR);
        for (int64_t entry = 0; entry < entries; entry++) {
            Integers column;
            for (int lane = 0; lane < LANES; lane++) column[lane] = tile[lane][entry];
            std::memcpy(stream + k * LANES + entry * TILE, &column, sizeof column);
        }
    }
}

// A stream of LANES columns of the weight itself: entry (k, lane) is weight[k][first + lane], else as above.
void pack_columns(const Weight& weight, int64_t num_rows, int64_t row_size, int64_t first, int64_t count,
                  float* stream) {
    for (int64_t k = 0; k < num_rows; k++) store(stream + k * LANES, weight(k * row_size + first, count));
}
void pack_columns(const Weight& weight, int64_t num_rows, int64_t row_size, int64_t first, int64_t count,
                  BFloat16* stream) {
    for (int64_t k = 0; k < num_rows; k += 2) {
        const Unsigned even = bfloat16_bits(weight(k * row_size + first, count));
        const Unsigned odd =
            k + 1 < num_rows ? bfloat16_bits(weight((k + 1) * row_size + first, count)) : Unsigned{};
        const Unsigned pairs = even | odd << 16;
        std::memcpy(stream + k * LANES, &pairs, sizeof pairs);
    }
}

}  // namespace

extern "C" {

struct Sizes {
    int64_t length, batch_size, num_chunks, chunk_size;
    int32_t num_threads, sequence_is_bfloat16, product_is_bfloat16;
    float recurrent_scale;
};

// What the forward pass reads and writes. The sequences (input_gates, outputs) are float32 or bfloat16, the rest is
// float32. The masks may be null; so may cells, softmaxes and activations, when there will be no backward pass.
struct Forward {
    const void* input_gates;         // [T, B, G]
    const float* recurrent_weight;   // [G, H]
    const uint8_t* recurrent_mask;   // [G, H]
    const float* hidden;             // [B, H]
    const float* cell;               // [B, H]
    const uint8_t* mask;             // [T, B]
    void* outputs;                   // [T, B, H]
    float* last_cell;                // [B, H]
    float* distances;                // [T, B, 2]: mean master input gate, mean master forget gate
    float* cells;                    // [T, B, H]: before each step
    float* softmaxes;                // [T, B, 2, C]
    float* activations;              // [T, B, 4, H]
};

// grad_outputs, grad_gates: float32 or bfloat16 as the sequences; grad_outputs, grad_last_cell and grad_distances may
// be null, and the masks.
struct Backward {
    const void* grad_outputs;        // [T, B, H]
    const float* grad_last_cell;     // [B, H]
    const float* grad_distances;     // [T, B, 2]
    const float* recurrent_weight;   // [G, H]
    const uint8_t* recurrent_mask;   // [G, H]
    const float* last_cell;          // [B, H]
    const uint8_t* mask;             // [T, B]
    const float* cells;              // [T, B, H]
    const float* softmaxes;          // [T, B, 2, C]
    const float* activations;        // [T, B, 4, H]
    void* grad_gates;                // [T, B, G]
    float* grad_hidden;              // [B, H]
    float* grad_cell;                // [B, H]
};

}  // extern "C"

namespace {

thread_local Workspace workspace;

// Softmax and cumulative softmax of one row of master gates; returns the mean of the cumulative one.
template <class Expand>
double cumulative_softmax(float* logits, int64_t num_chunks, Expand expand) {
    float largest = logits[0];
    for (int64_t c = 1; c < num_chunks; c++) largest = logits[c] > largest ? logits[c] : largest;
    double total = 0;
    for (int64_t c = 0; c < num_chunks; c += LANES) {
        const int64_t count = std::min<int64_t>(LANES, num_chunks - c);
        store(logits + c, exponential(load(logits + c, count) - largest), count);
    }
    for (int64_t c = 0; c < num_chunks; c++) total += logits[c];
    const float normalizer = static_cast<float>(1 / total);
    double cumulative = 0, sum = 0;
    for (int64_t c = 0; c < num_chunks; c++) {
        logits[c] *= normalizer;
        cumulative += logits[c];
        sum += cumulative;
        expand(c, static_cast<float>(cumulative));
    }
    return sum / num_chunks;
}

template <class Sequence, class Product>
void run_forward(const Sizes& sizes, const Forward& f) {
    constexpr int PAIR = Operand<Product>::PAIR;
    const int64_t T = sizes.length, B = sizes.batch_size, C = sizes.num_chunks, K = sizes.chunk_size;
    const int64_t H = C * K, G = 2 * C + 4 * H;
    const int64_t padded = round_up(H, LANES), stride = round_up(H, PAIR), stream_size = stride * LANES;
    const int64_t master_streams = (2 * C + LANES - 1) / LANES, unit_blocks = padded / LANES;
    const auto* input_gates = static_cast<const Sequence*>(f.input_gates);
    auto* outputs = static_cast<Sequence*>(f.outputs);

    const Weight weight{f.recurrent_weight, f.recurrent_mask, sizes.recurrent_scale};
    workspace.restart();
    // The largest comes first, here and in the backward pass, so that both use the same memory for it.
    auto* unit_weight = workspace.take<Product>(unit_blocks * 4 * stream_size);
    auto* master_weight = workspace.take<Product>(master_streams * stream_size);
    auto* hiddens = workspace.take<Product>(2 * B * stride);
    auto* carried = f.mask ? workspace.take<float>(B * padded) : nullptr;  // h_t before rounding
    auto* cell = workspace.take<float>(B * padded);
    auto* logits = workspace.take<float>(B * 2 * C);
    auto* master_input = workspace.take<float>(B * padded);
    auto* master_forget = workspace.take<float>(B * padded);

    Barrier barrier;
#pragma omp parallel num_threads(sizes.num_threads)
    {
        const int thread = omp_get_thread_num(), num_threads = omp_get_num_threads();
        const Range my_streams = share(master_streams, thread, num_threads);
        const Range my_blocks = share(unit_blocks, thread, num_threads);
        const Range my_rows = share(B, thread, num_threads);
        Vector sums[MAX_ROWS * MAX_STREAMS];
        const Product* streams[MAX_STREAMS];

        for (int64_t s = my_streams.begin; s < my_streams.end; s++)
            pack_rows(weight, H, s * LANES, std::min<int64_t>(LANES, 2 * C - s * LANES),
                      master_weight + s * stream_size);
        for (int64_t block = my_blocks.begin; block < my_blocks.end; block++)
            for (int64_t gate = 0; gate < 4; gate++)
                pack_rows(weight, H, 2 * C + gate * H + block * LANES,
                          std::min<int64_t>(LANES, H - block * LANES),
                          unit_weight + (block * 4 + gate) * stream_size);
        for (int64_t b = my_rows.begin; b < my_rows.end; b++) {
            for (int64_t u = 0; u < padded; u++) cell[b * padded + u] = u < H ? f.cell[b * H + u] : 0.0f;
            for (int64_t k = 0; k < stride; k++) {
                hiddens[b * stride + k] = from_float<Product>(k < H ? f.hidden[b * H + k] : 0.0f);
                hiddens[(B + b) * stride + k] = from_float<Product>(0.0f);
            }
            for (int64_t u = 0; carried && u < padded; u++) carried[b * padded + u] = u < H ? f.hidden[b * H + u] : 0;
        }
            barrier.wait(num_threads);

        for (int64_t t = 0; t < T; t++) {
            const Product* previous = hiddens + (t % 2) * B * stride;
            Product* next = hiddens + (1 - t % 2) * B * stride;
            const Sequence* inputs = input_gates + t * B * G;

            for (int64_t s = my_streams.begin; s < my_streams.end; s += MAX_STREAMS) {
                const int count = static_cast<int>(std::min<int64_t>(MAX_STREAMS, my_streams.end - s));
                for (int i = 0; i < count; i++) streams[i] = master_weight + (s + i) * stream_size;
                for_row_tiles(B, [&](int64_t first, int rows) {
                    std::fill_n(sums, rows * count, Vector{});
                    multiply(rows, count, previous + first * stride, stride, streams, stride, sums);
                    for (int row = 0; row < rows; row++)
                        for (int i = 0; i < count; i++) {
                            const int64_t column = (s + i) * LANES, b = first + row;
                            const int64_t lanes = std::min<int64_t>(LANES, 2 * C - column);
                            const Vector sum = sums[row * count + i] + load(inputs + b * G + column, lanes);
                            store(logits + b * 2 * C + column, sum, lanes);
                        }
                });
            }
            barrier.wait(num_threads);

            for (int64_t b = my_rows.begin; b < my_rows.end; b++) {
                float* row = logits + b * 2 * C;
                float* distances = f.distances + (t * B + b) * 2;
                distances[0] = static_cast<float>(1 - cumulative_softmax(row, C, [&](int64_t c, float value) {
                    std::fill_n(master_input + b * padded + c * K, K, 1 - value);
                }));
                distances[1] = static_cast<float>(cumulative_softmax(row + C, C, [&](int64_t c, float value) {
                    std::fill_n(master_forget + b * padded + c * K, K, value);
                }));
                if (f.softmaxes) std::memcpy(f.softmaxes + (t * B + b) * 2 * C, row, 2 * C * sizeof(float));
            }
            barrier.wait(num_threads);

            for (int64_t block = my_blocks.begin; block < my_blocks.end; block++) {
                const int64_t unit = block * LANES, lanes = std::min<int64_t>(LANES, H - unit);
                for (int gate = 0; gate < 4; gate++) streams[gate] = unit_weight + (block * 4 + gate) * stream_size;
                for_row_tiles(B, [&](int64_t first, int rows) {
                    std::fill_n(sums, rows * 4, Vector{});
                    // A line of each row: nothing else would fetch these before they are needed.
                    for (int row = 0; row < rows; row++)
                        for (int gate = 0; gate < 4; gate++)
                            fetch(inputs + (first + row) * G + 2 * C + gate * H + unit, lanes);
                    multiply(rows, 4, previous + first * stride, stride, streams, stride, sums);
                    for (int row = 0; row < rows; row++) {
                        const int64_t b = first + row, step_row = t * B + b;
                        const Sequence* gates = inputs + b * G + 2 * C + unit;
                        const Vector candidate = hyperbolic_tangent(sums[row * 4] + load(gates, lanes));
                        const Vector input_gate = sigmoid(sums[row * 4 + 1] + load(gates + H, lanes));
                        const Vector forget_gate = sigmoid(sums[row * 4 + 2] + load(gates + 2 * H, lanes));
                        const Vector output_gate = sigmoid(sums[row * 4 + 3] + load(gates + 3 * H, lanes));
                        const Vector mi = load(master_input + b * padded + unit);
                        const Vector mf = load(master_forget + b * padded + unit);
                        const Vector overlap = mi * mf;
                        const Vector before = load(cell + b * padded + unit);
                        Vector after = (forget_gate * overlap + (mf - overlap)) * before +
                                       (input_gate * overlap + (mi - overlap)) * candidate;
                        Vector hidden = output_gate * hyperbolic_tangent(after);
                        if (f.mask) {
                            if (!f.mask[step_row]) {
                                after = before;
                                hidden = load(carried + b * padded + unit);
                            }
                            store(carried + b * padded + unit, hidden);
                        }
                        store(cell + b * padded + unit, after);
                        store(next + b * stride + unit, hidden, lanes);
                        store(outputs + step_row * H + unit, hidden, lanes);
                        if (f.activations) {
                            float* saved = f.activations + step_row * 4 * H + unit;
                            store(saved, candidate, lanes);
                            store(saved + H, input_gate, lanes);
                            store(saved + 2 * H, forget_gate, lanes);
                            store(saved + 3 * H, output_gate, lanes);
                            store(f.cells + step_row * H + unit, before, lanes);
                        }
                    }
                });
            }
            barrier.wait(num_threads);
        }
        for (int64_t b = my_rows.begin; b < my_rows.end; b++)
            std::memcpy(f.last_cell + b * H, cell + b * padded, H * sizeof(float));
    }
}

template <class Sequence, class Product>
void run_backward(const Sizes& sizes, const Backward& f) {
    constexpr int PAIR = Operand<Product>::PAIR;
    const int64_t T = sizes.length, B = sizes.batch_size, C = sizes.num_chunks, K = sizes.chunk_size;
    const int64_t H = C * K, G = 2 * C + 4 * H;
    const int64_t stride = round_up(G, PAIR), stream_size = stride * LANES, num_streams = (H + LANES - 1) / LANES;
    const auto* grad_outputs = static_cast<const Sequence*>(f.grad_outputs);
    auto* grad_gates = static_cast<Sequence*>(f.grad_gates);

    const Weight weight{f.recurrent_weight, f.recurrent_mask, sizes.recurrent_scale};
    workspace.restart();
    auto* packed = workspace.take<Product>(num_streams * stream_size);
    auto* step_gates = workspace.take<Product>(B * stride);
    auto* grad_masters = workspace.take<float>(B * 2 * C);
    auto* scratch = workspace.take<float>(sizes.num_threads * 4 * (H + LANES));

    Barrier barrier;
#pragma omp parallel num_threads(sizes.num_threads)
    {
        const int thread = omp_get_thread_num(), num_threads = omp_get_num_threads();
        const Range my_streams = share(num_streams, thread, num_threads);
        const Range my_rows = share(B, thread, num_threads);
        // The pointwise part is shared out by rows, and by runs of chunks where there are few rows.
        const int64_t runs = std::min<int64_t>(C, (2 * num_threads + B - 1) / B);
        const Range my_items = share(B * runs, thread, num_threads);
        float* mi_units = scratch + thread * 4 * (H + LANES);
        float* mf_units = mi_units + H + LANES;
        float* grad_mi_units = mf_units + H + LANES;
        float* grad_mf_units = grad_mi_units + H + LANES;
        Vector sums[MAX_ROWS * MAX_STREAMS];
        const Product* streams[MAX_STREAMS];

        for (int64_t s = my_streams.begin; s < my_streams.end; s++)
            pack_columns(weight, G, H, s * LANES, std::min<int64_t>(LANES, H - s * LANES),
                         packed + s * stream_size);
        for (int64_t b = my_rows.begin; b < my_rows.end; b++) {
            for (int64_t k = G; k < stride; k++) step_gates[b * stride + k] = from_float<Product>(0.0f);
            for (int64_t u = 0; u < H; u++) {
                f.grad_hidden[b * H + u] = grad_outputs ? to_float(grad_outputs[((T - 1) * B + b) * H + u]) : 0.0f;
                f.grad_cell[b * H + u] = f.grad_last_cell ? f.grad_last_cell[b * H + u] : 0.0f;
            }
        }
            barrier.wait(num_threads);

        for (int64_t t = T - 1; t >= 0; t--) {
            for (int64_t item = my_items.begin; item < my_items.end; item++) {
                const int64_t b = item / runs, step_row = t * B + b;
                const Range chunks = share(C, static_cast<int>(item % runs), static_cast<int>(runs));
                const int64_t first_unit = chunks.begin * K, units = (chunks.end - chunks.begin) * K;
                const bool real = !f.mask || f.mask[step_row];
                float* grad_row = grad_masters + b * 2 * C;
                const float extra_mi = f.grad_distances ? f.grad_distances[step_row * 2] / C : 0.0f;
                const float extra_mf = f.grad_distances ? f.grad_distances[step_row * 2 + 1] / C : 0.0f;
                Sequence* gates = grad_gates + step_row * G + 2 * C + first_unit;
                Product* product_gates = step_gates + b * stride + 2 * C + first_unit;
                if (!real) {
                    for (int64_t c = chunks.begin; c < chunks.end; c++) {
                        grad_row[c] = extra_mi;
                        grad_row[C + c] = extra_mf;
                    }
                    for (int gate = 0; gate < 4; gate++) {
                        std::fill_n(gates + gate * H, units, from_float<Sequence>(0.0f));
                        std::fill_n(product_gates + gate * H, units, from_float<Product>(0.0f));
                    }
                    continue;
                }

                const float* softmaxes = f.softmaxes + step_row * 2 * C;
                double cumulative_input = 0, cumulative_forget = 0;
                for (int64_t c = 0; c < chunks.end; c++) {
                    cumulative_input += softmaxes[c];
                    cumulative_forget += softmaxes[C + c];
                    if (c < chunks.begin) continue;
                    const int64_t unit = (c - chunks.begin) * K;
                    std::fill_n(mi_units + unit, K, 1 - static_cast<float>(cumulative_input));
                    std::fill_n(mf_units + unit, K, static_cast<float>(cumulative_forget));
                }

                const float* activations = f.activations + step_row * 4 * H + first_unit;
                const float* before = f.cells + step_row * H + first_unit;
                const float* after = (t + 1 < T ? f.cells + (step_row + B) * H : f.last_cell + b * H) + first_unit;
                float* grad_hidden = f.grad_hidden + b * H + first_unit;
                float* grad_cell = f.grad_cell + b * H + first_unit;
                for (int64_t u = 0; u < units; u += LANES) {
                    const int64_t lanes = std::min<int64_t>(LANES, units - u);
                    const Vector candidate = load(activations + u, lanes);
                    const Vector input_gate = load(activations + H + u, lanes);
                    const Vector forget_gate = load(activations + 2 * H + u, lanes);
                    const Vector output_gate = load(activations + 3 * H + u, lanes);
                    const Vector previous = load(before + u, lanes);
                    const Vector tanh_cell = hyperbolic_tangent(load(after + u, lanes));
                    const Vector mi = load(mi_units + u), mf = load(mf_units + u);
                    const Vector overlap = mi * mf;
                    const Vector from_hidden = load(grad_hidden + u, lanes);
                    const Vector from_cell = load(grad_cell + u, lanes) +
                                             from_hidden * output_gate * (1.0f - tanh_cell * tanh_cell);
                    const Vector grad_input = from_cell * candidate, grad_forget = from_cell * previous;
                    const Vector grads[4] = {
                        from_cell * (input_gate * overlap + (mi - overlap)) * (1.0f - candidate * candidate),
                        grad_input * overlap * input_gate * (1.0f - input_gate),
                        grad_forget * overlap * forget_gate * (1.0f - forget_gate),
                        from_hidden * tanh_cell * output_gate * (1.0f - output_gate)};
                    for (int gate = 0; gate < 4; gate++) {
                        store(gates + gate * H + u, grads[gate], lanes);
                        store(product_gates + gate * H + u, grads[gate], lanes);
                    }
                    const Vector slack = grad_input * (input_gate - 1.0f) + grad_forget * (forget_gate - 1.0f);
                    store(grad_mi_units + u, grad_input + mf * slack);
                    store(grad_mf_units + u, grad_forget + mi * slack);
                    store(grad_cell + u, from_cell * (forget_gate * overlap + (mf - overlap)), lanes);
                }
                for (int64_t c = chunks.begin; c < chunks.end; c++) {
                    const int64_t unit = (c - chunks.begin) * K;
                    float grad_mi = extra_mi, grad_mf = extra_mf;
                    for (int64_t u = unit; u < unit + K; u++) {
                        grad_mi += grad_mi_units[u];
                        grad_mf += grad_mf_units[u];
                    }
                    grad_row[c] = grad_mi;
                    grad_row[C + c] = grad_mf;
                }
            }
            barrier.wait(num_threads);

            for (int64_t b = my_rows.begin; b < my_rows.end; b++) {
                const int64_t step_row = t * B + b;
                for (int master = 0; master < 2; master++) {
                    // The master input gate is 1 - cumsum(softmax), the master forget gate cumsum(softmax).
                    const double sign = master == 0 ? -1 : 1;
                    float* grads = grad_masters + (b * 2 + master) * C;
                    const float* softmax = f.softmaxes + (step_row * 2 + master) * C;
                    double reverse = 0, dot = 0;
                    for (int64_t c = C - 1; c >= 0; c--) {
                        reverse += sign * grads[c];
                        dot += reverse * softmax[c];
                        grads[c] = static_cast<float>(reverse);
                    }
                    for (int64_t c = 0; c < C; c++) {
                        const float grad = softmax[c] * (grads[c] - static_cast<float>(dot));
                        grad_gates[step_row * G + master * C + c] = from_float<Sequence>(grad);
                        step_gates[b * stride + master * C + c] = from_float<Product>(grad);
                    }
                }
            }
            barrier.wait(num_threads);

            for (int64_t s = my_streams.begin; s < my_streams.end; s += MAX_STREAMS) {
                const int count = static_cast<int>(std::min<int64_t>(MAX_STREAMS, my_streams.end - s));
                for (int64_t k = 0; k < stride; k += BLOCK) {
                    const int64_t size = std::min(BLOCK, stride - k);
                    for (int i = 0; i < count; i++) streams[i] = packed + (s + i) * stream_size + k * LANES;
                    for_row_tiles(B, [&](int64_t first, int rows) {
                        for (int row = 0; row < rows; row++)
                            for (int i = 0; i < count; i++) {
                                const int64_t b = first + row, unit = (s + i) * LANES;
                                const int64_t lanes = std::min<int64_t>(LANES, H - unit);
                                Vector& sum = sums[row * count + i];
                                const bool carries = k > 0 || (f.mask && !f.mask[t * B + b]);
                                sum = carries ? load(f.grad_hidden + b * H + unit, lanes) : Vector{};
                                if (k == 0 && t > 0 && grad_outputs)
                                    sum += load(grad_outputs + ((t - 1) * B + b) * H + unit, lanes);
                            }
                        multiply(rows, count, step_gates + first * stride + k, stride, streams, size, sums);
                        for (int row = 0; row < rows; row++)
                            for (int i = 0; i < count; i++) {
                                const int64_t unit = (s + i) * LANES;
                                store(f.grad_hidden + (first + row) * H + unit, sums[row * count + i],
                                      std::min<int64_t>(LANES, H - unit));
                            }
                    });
                }
            }
            barrier.wait(num_threads);
        }
    }
}

}  // namespace

extern "C" {

// The version of the structures above; 0 where this CPU lacks the instructions that this library was compiled for.
int ordered_neurons_interface() {
#if defined(__AVX512BF16__)
    if (!__builtin_cpu_supports("avx512bf16")) return 0;
#endif
#if defined(__AVX512F__)
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return 0;
#endif
#if defined(__AVX2__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
#endif
    return 2;
}

// Both return 0, or 1 when memory runs out.
int ordered_neurons_forward(const Sizes* sizes, const Forward* arguments) {
    try {
        if (sizes->sequence_is_bfloat16)
            (sizes->product_is_bfloat16 ? run_forward<BFloat16, BFloat16> : run_forward<BFloat16, float>)(*sizes,
                                                                                                         *arguments);
        else
            (sizes->product_is_bfloat16 ? run_forward<float, BFloat16> : run_forward<float, float>)(*sizes, *arguments);
    } catch (const std::bad_alloc&) {
        return 1;
    }
    return 0;
}

int ordered_neurons_backward(const Sizes* sizes, const Backward* arguments) {
    try {
        if (sizes->sequence_is_bfloat16)
            (sizes->product_is_bfloat16 ? run_backward<BFloat16, BFloat16> : run_backward<BFloat16, float>)(
                *sizes, *arguments);
        else
            (sizes->product_is_bfloat16 ? run_backward<float, BFloat16> : run_backward<float, float>)(*sizes,
                                                                                                      *arguments);
    } catch (const std::bad_alloc&) {
        return 1;
    }
    return 0;
}

}  // extern "C"
