// Shared parts of the compiled CPU operators: vectors of floats and their functions, matrix products with a packed
// weight, a memory cache, and cooperating threads. Compiled into each operator, for each instruction set.

#pragma once

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

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
// Number of entries that a tile sums at a time, so that its weights stay in the L2 cache for all rows.
constexpr int64_t BLOCK = 1536;
// Prefetch distance of float32 weights, as the CPU's own prefetching stops at each page.
constexpr int64_t AHEAD = 16;

using Vector = float __attribute__((vector_size(LANES * 4)));
using Integers = int32_t __attribute__((vector_size(LANES * 4)));
using Unsigned = uint32_t __attribute__((vector_size(LANES * 4)));
using Half = uint16_t __attribute__((vector_size(LANES * 2)));

// Returns whether this CPU has the instructions that this file was compiled for.
bool is_supported() {
#if defined(__AVX512BF16__)
    if (!__builtin_cpu_supports("avx512bf16")) return false;
#endif
#if defined(__AVX512F__)
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return false;
#endif
#if defined(__AVX2__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return false;
#endif
    return true;
}

struct BFloat16 {
    uint16_t bits;
};

inline float to_float(float value) { return value; }
inline float to_float(BFloat16 value) {
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

inline Vector load(const BFloat16* source) {
    Half bits;
    std::memcpy(&bits, source, sizeof bits);
    return reinterpret_cast<Vector>(__builtin_convertvector(bits, Integers) << 16);
}
// Rounds to nearest even, in the lower half of each entry; NaN stays NaN.
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

// Prefetches at most a vector of entries, which is on one or two cache lines.
template <class T>
void fetch(const T* source, int64_t count) {
    __builtin_prefetch(source);
    __builtin_prefetch(source + count - 1);
}

// Computes exp as 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]; NaN stays NaN.
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

// Computes tanh; near 0 by a polynomial, where 1 - 2 / (exp(2 x) + 1) would lose digits.
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

// Format of the left operand's rows and the right one's streams: float32 or pairs of bfloat16.
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

// Memory that each calling thread reuses for later calls, because new pages are slow.
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

struct Range {
    int64_t begin, end;
};

// Part `index` of `count` parts of the work.
struct Part {
    int index, count;
    // Returns its share of `size` rows or columns.
    Range of(int64_t size) const { return {size * index / count, size * (index + 1) / count}; }
};

// Threads that run the phases of each step together. A phase has one part for each requested thread. Every thread takes
// its own part first, whose data are in its cache, and then parts that are not taken yet. So the other threads continue
// if one has lost its core.
class Team {
   public:
    explicit Team(int num_parts) : num_parts_(num_parts), taken_(new Taken[num_parts]) {}

    // One thread's progress through the phases. All threads must run the same phases.
    class Member {
       public:
        Member(Team& team, int thread) : team_(team), thread_(thread) {}

        // Calls `function(part)` for each part that this thread takes, and returns when all parts are done.
        template <class Function>
        void run(Function function) {
            phase_++;
            int num_done = 0;
            for (int i = 0; i < team_.num_parts_ && team_.has_parts(phase_); i++) {
                const int part = (thread_ + i) % team_.num_parts_;
                if (!team_.take(part, phase_)) continue;
                function(Part{part, team_.num_parts_});
                num_done++;
            }
            team_.finish(phase_, num_done);
        }

       private:
        Team& team_;
        const int thread_;
        int phase_ = 0;
    };

   private:
    // Number of spins, some tens of microseconds, before a waiting thread sleeps. On an idle machine few waits are
    // longer. A thread that waits for one without a core should not occupy another core.
    static constexpr int MAX_SPINS = 1000;

    struct alignas(64) Taken {
        std::atomic<int> phase{0};
    };

    int64_t parts_until(int phase) const { return static_cast<int64_t>(phase) * num_parts_; }
    bool has_parts(int phase) const { return num_taken_.load(std::memory_order_relaxed) < parts_until(phase); }

    bool take(int part, int phase) {
        std::atomic<int>& taken = taken_[part].phase;
        int before = phase - 1;
        if (taken.load(std::memory_order_relaxed) != before ||
            !taken.compare_exchange_strong(before, phase, std::memory_order_relaxed))
            return false;
        num_taken_.fetch_add(1, std::memory_order_relaxed);
        return true;
    }

    void finish(int phase, int num_done) {
        if (num_done &&
            num_done_.fetch_add(num_done, std::memory_order_acq_rel) + num_done == parts_until(phase)) {
            completed_.store(phase);
            if (sleeping_.load()) wake_all();
            return;
        }
        for (int spins = 0; spins < MAX_SPINS; spins++) {
            if (completed_.load(std::memory_order_acquire) >= phase) return;
            relax();
        }
        sleeping_.fetch_add(1);
        for (int completed; (completed = completed_.load()) < phase;) sleep_while(completed);
        sleeping_.fetch_sub(1);
    }

    static void relax() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    void sleep_while(int completed) {
        syscall(SYS_futex, &completed_, FUTEX_WAIT_PRIVATE, completed, nullptr, nullptr, 0);
    }
    void wake_all() { syscall(SYS_futex, &completed_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

    const int num_parts_;
    const std::unique_ptr<Taken[]> taken_;
    alignas(64) std::atomic<int64_t> num_taken_{0};  // parts, of all phases
    alignas(64) std::atomic<int64_t> num_done_{0};
    alignas(64) std::atomic<int> completed_{0};  // the last completed phase
    std::atomic<int> sleeping_{0};
};

// Calls `function(first, rows)` for tiles of at most MAX_ROWS rows and nearly equal size.
template <class Function>
void for_row_tiles(int64_t batch_size, Function function) {
    const int64_t tiles = (batch_size + MAX_ROWS - 1) / MAX_ROWS;
    for (int64_t tile = 0; tile < tiles; tile++) {
        const int64_t begin = batch_size * tile / tiles, end = batch_size * (tile + 1) / tiles;
        function(begin, static_cast<int>(end - begin));
    }
}

// A weight after drop-connect, times a factor.
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

// Packs LANES columns of the transposed weight into a stream: entry (k, lane) is weight[first + lane][k] if `lane` is
// below `count`, else 0. Transposes tiles of 32-bit entries, each a float or a pair of bfloat16.
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

// Packs LANES columns of the weight into a stream: entry (k, lane) is weight[k][first + lane], else as above.
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
