package chat

import (
	"math"
	"math/big"
	"strings"

	"github.com/ardanlabs/jinja"
)

func loBinary(r *run, _ *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	left := args[0]
	for i := 1; i < len(args); i += 2 {
		var err error
		if left, err = r.arith(args[i].AsString(), left, args[i+1]); err != nil {
			return left, err
		}
	}
	return left, nil
}

// arith is Python's a op b for + - * / // % **.
func (r *run) arith(op string, a, b jinja.Value) (jinja.Value, error) {
	ka, kb := r.kind(a), r.kind(b)
	switch {
	case ka == kUndefined || kb == kUndefined:
		return a, pyErr("operand of %s is undefined", op)
	case op == "+" && (isText(ka) || ka == kList || ka == kTuple):
		return r.add(a, b)
	case op == "%" && isText(ka):
		return r.percent(a, b)
	case op == "*" && (isText(ka) || ka == kList || ka == kTuple):
		return r.repeat(a, b)
	case op == "*" && (isText(kb) || kb == kList || kb == kTuple):
		return r.repeat(b, a)
	case !isNumber(ka) || !isNumber(kb):
		return a, pyErr("unsupported operand type(s) for %s: '%s' and '%s'", op, ka, kb)
	case ka == kFloat || kb == kFloat || op == "/":
		x, _ := number(a)
		y, _ := number(b)
		return floatArith(op, x, y)
	}
	return r.intArith(op, a, b)
}

func isText(k kind) bool   { return k == kStr || k == kMarkup }
func isNumber(k kind) bool { return k == kInt || k == kBool || k == kFloat || k == kBig }

// add joins strings, lists and tuples. Markup escapes a plain string that is added to it.
func (r *run) add(a, b jinja.Value) (jinja.Value, error) {
	ka, kb := r.kind(a), r.kind(b)
	if x, ok := str(a); ok {
		y, ok := str(b)
		if !ok {
			return a, pyErr("can only concatenate str (not \"%s\") to str", kb)
		}
		if ka == kMarkup || kb == kMarkup {
			return r.addMarkup(x, y, ka, kb)
		}
		return r.concat(x, y)
	}
	if ka != kb {
		return a, pyErr("can only concatenate %s (not \"%s\") to %s", ka, kb, ka)
	}
	items, err := r.extend(a.AsList().Items, b.AsList().Items)
	if err != nil {
		return a, err
	}
	if ka == kTuple {
		return r.tagged(items, tagTuple), r.alloc(pairBytes)
	}
	return list(items), nil
}

func (r *run) addMarkup(x, y string, kx, ky kind) (jinja.Value, error) {
	if err := r.alloc(6 * (len(x) + len(y))); err != nil {
		return jinja.Value{}, err
	}
	if kx != kMarkup {
		x = escape(x)
	}
	if ky != kMarkup {
		y = escape(y)
	}
	return newMarkup(x + y), nil
}

// repeat is Python's sequence * count.
func (r *run) repeat(seq, count jinja.Value) (jinja.Value, error) {
	n, ok := integer(count)
	if !ok {
		return seq, pyErr("can't multiply sequence by non-int of type '%s'", r.kind(count))
	}
	n = min(max(n, 0), math.MaxInt32)
	if s, ok := str(seq); ok {
		if err := r.allocTimes(len(s), int(n)); err != nil {
			return seq, err
		}
		s = strings.Repeat(s, int(n))
		if r.kind(seq) == kMarkup {
			return newMarkup(s), nil
		}
		return jinja.NewString(s), nil
	}
	src := seq.AsList().Items
	if err := r.allocTimes(len(src)*valueBytes, int(n)); err != nil {
		return seq, err
	}
	items := make([]jinja.Value, 0, len(src)*int(n))
	for range n {
		items = append(items, src...)
		if len(src) == 0 {
			break
		}
	}
	if r.kind(seq) == kTuple {
		return r.tagged(items, tagTuple), r.alloc(pairBytes)
	}
	return list(items), nil
}

func floatArith(op string, x, y float64) (jinja.Value, error) {
	if y == 0 && (op == "/" || op == "//" || op == "%") {
		return jinja.Value{}, pyErr("division by zero")
	}
	switch op {
	case "+":
		return jinja.NewFloat(x + y), nil
	case "-":
		return jinja.NewFloat(x - y), nil
	case "*":
		return jinja.NewFloat(x * y), nil
	case "/":
		return jinja.NewFloat(x / y), nil
	case "**":
		return jinja.NewFloat(math.Pow(x, y)), nil
	}
	rem := math.Mod(x, y)
	quo := (x - rem) / y
	if rem != 0 && (rem < 0) != (y < 0) {
		rem += y
		quo--
	}
	if rem == 0 {
		rem = math.Copysign(0, y)
	}
	if op == "%" {
		return jinja.NewFloat(rem), nil
	}
	if quo == 0 {
		return jinja.NewFloat(math.Copysign(0, x/y)), nil
	}
	floor := math.Floor(quo)
	if quo-floor > 0.5 {
		floor++
	}
	return jinja.NewFloat(floor), nil
}

// maxBigBits bounds integers beyond 64 bits.
const maxBigBits = 2048

// intArith is exact: what leaves 64 bits becomes a big integer.
func (r *run) intArith(op string, a, b jinja.Value) (jinja.Value, error) {
	if i, ok := integer(a); ok && i == int64(int32(i)) {
		if j, ok := integer(b); ok && j == int64(int32(j)) {
			switch op {
			case "+":
				return jinja.NewInt(i + j), nil
			case "-":
				return jinja.NewInt(i - j), nil
			case "*":
				return jinja.NewInt(i * j), nil
			}
		}
	}
	x, y := toBig(a), toBig(b)
	z := new(big.Int)
	switch op {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		z.Mul(x, y)
	case "//", "%":
		if y.Sign() == 0 {
			return a, pyErr("integer division or modulo by zero")
		}
		mod := new(big.Int)
		z.QuoRem(x, y, mod)
		if mod.Sign() != 0 && mod.Sign() != y.Sign() {
			mod.Add(mod, y)
			z.Sub(z, big.NewInt(1))
		}
		if op == "%" {
			z = mod
		}
	case "**":
		if y.Sign() < 0 {
			f, _ := number(a)
			e, _ := number(b)
			if f == 0 {
				return a, pyErr("0.0 cannot be raised to a negative power")
			}
			return jinja.NewFloat(math.Pow(f, e)), nil
		}
		if x.BitLen() > 1 && (!y.IsInt64() || y.Int64() > maxBigBits/int64(x.BitLen()-1)) {
			return a, pyErr("integer has more than %d bits", maxBigBits)
		}
		if x.BitLen() <= 1 { // -1, 0 and 1 stay small whatever the exponent
			y = new(big.Int).And(y, big.NewInt(1))
			if toBig(b).Sign() != 0 && y.Sign() == 0 {
				y.SetInt64(2)
			}
		}
		z.Exp(x, y, nil)
	}
	return bigValue(z)
}

func bigValue(z *big.Int) (jinja.Value, error) {
	if z.IsInt64() {
		return jinja.NewInt(z.Int64()), nil
	}
	if z.BitLen() > maxBigBits {
		return jinja.Value{}, pyErr("integer has more than %d bits", maxBigBits)
	}
	return newBig(z.String()), nil
}

func toBig(v jinja.Value) *big.Int {
	if i, ok := integer(v); ok {
		return big.NewInt(i)
	}
	digits, _ := bigDigits(v)
	z, _ := new(big.Int).SetString(digits, 10)
	return z
}

func loUnary(r *run, _ *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	op, v := args[0].AsString(), args[1]
	switch k := r.kind(v); {
	case k == kUndefined:
		return v, pyErr("operand of unary %s is undefined", op)
	case k == kFloat && op == "-":
		return jinja.NewFloat(-v.AsFloat()), nil
	case k == kFloat:
		return v, nil
	case !isNumber(k):
		return v, pyErr("bad operand type for unary %s: '%s'", op, k)
	case op == "-":
		return bigValue(new(big.Int).Neg(toBig(v)))
	}
	return bigValue(toBig(v))
}

// loConcat is a ~ b: the texts of the values, one after the other. Markup among them is not kept: HF's environment does not
// escape.
func loConcat(r *run, _ *site, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	parts := make([]string, len(args)+1) // the first stays empty when there are no args
	for i, a := range args {
		var err error
		if parts[i], err = r.text(a); err != nil {
			return a, err
		}
	}
	return r.concat(parts[0], parts[1:]...)
}
