package detmath

import (
	"bufio"
	"hash/fnv"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func call(t *testing.T, name string, args []float64) float64 {
	switch name {
	case "pow":
		return Pow(args[0], args[1])
	case "exp":
		return Exp(args[0])
	case "log":
		return Log(args[0])
	case "sin":
		return Sin(args[0])
	case "cos":
		return Cos(args[0])
	}
	t.Fatalf("reference.txt names the unknown function %q", name)
	return 0
}

// ulps counts the float64 values between a and b.
func ulps(a, b float64) float64 {
	if a == b {
		return 0
	}
	order := func(x float64) int64 {
		v := int64(math.Float64bits(x))
		if v < 0 {
			return math.MinInt64 - v
		}
		return v
	}
	if math.IsNaN(a) || math.IsNaN(b) || math.Signbit(a) != math.Signbit(b) {
		return math.Inf(1)
	}
	return math.Abs(float64(order(a) - order(b)))
}

func TestReference(t *testing.T) {
	f, err := os.Open("testdata/reference.txt")
	require.NoError(t, err)
	defer f.Close()
	worst, seen := map[string]float64{}, map[string]int{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		fields := strings.Fields(sc.Text())
		if fields[0] == "#" {
			continue
		}
		var v []float64
		for _, s := range fields[1:] {
			if !strings.Contains(s, "p") {
				s += "p0"
			}
			x, err := strconv.ParseFloat(s, 64)
			require.NoError(t, err)
			v = append(v, x)
		}
		want := v[len(v)-1]
		got := call(t, fields[0], v[:len(v)-1])
		seen[fields[0]]++
		d := ulps(got, want)
		worst[fields[0]] = max(worst[fields[0]], d)
		require.LessOrEqual(t, d, 1.0, "%s: got %v", sc.Text(), got)
	}
	require.Len(t, seen, 5)
	t.Log("worst distance in units of the last place", worst, "cases", seen)
}

func TestSpecialValues(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	same := func(want, got float64, msg string, args ...any) {
		t.Helper()
		if math.IsNaN(want) {
			require.True(t, math.IsNaN(got), append([]any{msg + ": got %v"}, append(args, got)...)...)
			return
		}
		require.Equal(t, math.Float64bits(want), math.Float64bits(got), append([]any{msg}, args...)...)
	}
	edge := []float64{0, math.Copysign(0, -1), 1, -1, 2, -2, 3, -3, 0.5, -0.5, inf, -inf, nan, 1e300, -1e300, 1e-300, 5e-324, 1 << 53, 1<<53 + 2}
	for _, x := range edge {
		for _, y := range edge {
			want, got := math.Pow(x, y), Pow(x, y)
			if ulps(want, got) <= 1 {
				continue
			}
			same(want, got, "Pow(%v, %v)", x, y)
		}
		if math.IsInf(x, 0) || math.IsNaN(x) || x == 0 {
			same(math.Exp(x), Exp(x), "Exp(%v)", x)
			same(math.Log(x), Log(x), "Log(%v)", x)
			same(math.Sin(x), Sin(x), "Sin(%v)", x)
			same(math.Cos(x), Cos(x), "Cos(%v)", x)
		}
	}
	same(nan, Log(-1), "Log(-1)")
	same(inf, Exp(710), "Exp(710)")
	same(0, Exp(-746), "Exp(-746)")
}

func TestAgainstMath(t *testing.T) {
	near := func(want, got float64, x float64) {
		t.Helper()
		require.LessOrEqual(t, ulps(want, got), 3.0, "at %v: want %v, got %v", x, want, got)
	}
	for i := range 40000 {
		x := (float64(i) - 20000) * 0.0354
		near(math.Exp(x), Exp(x), x)
		near(math.Log(math.Abs(x)+1e-9), Log(math.Abs(x)+1e-9), x)
		if math.Abs(math.Sin(x)) > 1e-3 && math.Abs(math.Cos(x)) > 1e-3 {
			near(math.Sin(x), Sin(x), x)
			near(math.Cos(x), Cos(x), x)
		}
	}
}

// TestSameBits holds the bits of a sweep over all functions; it must give this sum on every CPU and at every GOAMD64 level.
func TestSameBits(t *testing.T) {
	h := fnv.New64a()
	var b [8]byte
	put := func(x float64) {
		v := math.Float64bits(x)
		for i := range b {
			b[i] = byte(v >> (8 * i))
		}
		h.Write(b[:])
	}
	x := 1e-8
	for range 20000 {
		x *= 1.0017
		put(Exp(-x))
		put(Log(x))
		put(Sin(x))
		put(Cos(x * 3))
		put(Pow(x, 0.37))
		put(Pow(10000, -x/1e4))
	}
	require.Equal(t, uint64(0x633e35c7d46b529e), h.Sum64())
}

func BenchmarkExp(b *testing.B) {
	x, sum := -20.0, 0.0
	for b.Loop() {
		sum += Exp(x)
		if x += 0.001; x > 0 {
			x = -20
		}
	}
	_ = sum
}

func BenchmarkSincos(b *testing.B) {
	x, sum := 0.0, 0.0
	for b.Loop() {
		s, c := Sincos(x)
		sum += s + c
		x += 0.7
	}
	_ = sum
}

func TestExpSum(t *testing.T) {
	x := make([]float64, 5000)
	for i := range x {
		x[i] = 3 - float64(i)*float64(i)*4e-5
	}
	for _, inv := range []float64{1, 0.25, 1 / 0.7, 50} {
		got := make([]float64, len(x))
		sum := ExpSum(got, x, 3, inv)
		total := 0.0
		for i, v := range x {
			e := Exp(float64((v - 3) * inv))
			if float64((v-3)*inv) < -708 {
				e = 0
			}
			require.LessOrEqual(t, ulps(e, got[i]), 1.0, "x %v inv %v", v, inv)
			total += got[i]
		}
		require.InEpsilon(t, total, sum, 1e-14)
		require.Equal(t, sum, Sum(got))
	}
	require.Zero(t, ExpSum(make([]float64, 1), []float32{float32(math.Inf(-1))}, 3, 1))
}

// TestSumOrder adds numbers whose sum depends on the order.
func TestSumOrder(t *testing.T) {
	x := make([]float64, 2*ExpLanes+3)
	x[0], x[ExpLanes], x[2*ExpLanes] = 1, 0x1p-53, 0x1p-53 // one lane, each lost alone
	require.Equal(t, 1.0, Sum(x))
	x[0], x[ExpLanes], x[2*ExpLanes] = 0x1p-53, 0x1p-53, 1
	require.Equal(t, 1+0x1p-52, Sum(x))
	clear(x)
	x[0], x[8], x[4], x[12] = 1, 0x1p-53, 0x1p-53, 0x1p-53 // (0+8) + (4+12)
	require.Equal(t, 1+0x1p-52, Sum(x))
	require.Zero(t, Sum(nil))
}

func BenchmarkExpSum150k(b *testing.B) {
	x, dst := make([]float64, 150000), make([]float64, 150000)
	for i := range x {
		x[i] = -float64(i%2000) * 0.01
	}
	for b.Loop() {
		ExpSum(dst, x, 0, 1)
	}
}
