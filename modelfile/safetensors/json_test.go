package safetensors

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/minio/simdjson-go"
	"github.com/stretchr/testify/require"

	"quickdraft/internal/invariants"
)

// decoders are both ways to decode, or one where the CPU has no other.
func decoders(t testing.TB) map[string]func([]byte) (any, error) {
	all := map[string]func([]byte) (any, error){"std": decodeStd}
	if simdjson.SupportedCPU() {
		all["simd"] = decodeSIMD
	} else {
		t.Log("this CPU has no simdjson: encoding/json only")
	}
	return all
}

// plain turns objects into maps, to compare with what a test writes down.
func plain(v any) any {
	switch v := v.(type) {
	case *Object:
		m := map[string]any{}
		for _, key := range v.Keys() {
			e, _ := v.Get(key)
			m[key] = plain(e)
		}
		return m
	case []any:
		all := make([]any, len(v))
		for i, e := range v {
			all[i] = plain(e)
		}
		return all
	}
	return v
}

var accepted = []struct {
	json string
	want any // the value of key "a"
}{
	{`{"a":null}`, nil},
	{`{"a":true}`, true},
	{" \t\r\n{ \"a\" : false } \n", false},
	{`{"a":""}`, ""},
	{`{"a":"é😀\n\"\\\/\u00e9\ud83d\ude00\u0000"}`, "é😀\n\"\\/é😀\x00"},
	{`{"a":0}`, int64(0)},
	{`{"a":-0}`, int64(0)},
	{`{"a":-0.0}`, math.Copysign(0, -1)},
	{`{"a":9223372036854775807}`, int64(math.MaxInt64)},
	{`{"a":-9223372036854775808}`, int64(math.MinInt64)},
	{`{"a":9223372036854775808}`, uint64(1 << 63)},
	{`{"a":18446744073709551615}`, uint64(math.MaxUint64)},
	{`{"a":18446744073709551616}`, float64(1 << 64)},
	{`{"a":-9223372036854775809}`, float64(-1 << 63)},
	{`{"a":1e-06}`, 1e-6},
	{`{"a":1.7976931348623157e308}`, math.MaxFloat64},
	{`{"a":5e-324}`, 5e-324},
	{`{"a":1e-400}`, 0.0},
	{`{"a":0.1E+1}`, 1.0},
	{`{"a":2.00000000000000011102230246251565404236316680908203125}`, 2.0},
	{`{"a":[]}`, []any{}},
	{`{"a":[1,[2,{"b":"c"}],"d"]}`, []any{int64(1), []any{int64(2), map[string]any{"b": "c"}}, "d"}},
	{`{"a":{}}`, map[string]any{}},
	{`{"a":{"":1,"b":2}}`, map[string]any{"": int64(1), "b": int64(2)}},
	{`{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`, nest(62)},
	{`{"a":"` + strings.Repeat("x", 9000) + `"}`, strings.Repeat("x", 9000)},
}

func nest(n int) any {
	v := []any{}
	for range n {
		v = []any{v}
	}
	return v
}

func TestJSONIsAccepted(t *testing.T) {
	for name, decode := range decoders(t) {
		for _, c := range accepted {
			o, err := parseJSON("c.json", 0, []byte(c.json), decode)
			require.NoError(t, err, "%s: %s", name, c.json)
			got, ok := o.Get("a")
			require.True(t, ok)
			require.Equal(t, c.want, plain(got), "%s: %s", name, c.json)
		}
	}
}

var refused = []struct {
	json   string
	offset int64
	key    string
	reason string
}{
	{``, 0, "", "ends where a value is wanted"},
	{`  `, 2, "", "ends where a value is wanted"},
	{`null`, 0, "", "is not an object"},
	{`[1]`, 0, "", "is not an object"},
	{`"a"`, 0, "", "is not an object"},
	{"\ufeff{}", 0, "", "want a JSON value"},
	{`{`, 1, "", `want '"' before a key`},
	{`{"a"}`, 4, "", "want ':' after a key"},
	{`{"a":}`, 5, "", "want a JSON value"},
	{`{"a":1`, 6, "", `want '}' or ","`},
	{`{"a":1,}`, 7, "", `want '"' before a key`},
	{`{"a":1]`, 6, "", `want '}'`},
	{`{a:1}`, 1, "", `want '"' before a key`},
	{`{'a':1}`, 1, "", `want '"' before a key`},
	{`{"a":[1,]}`, 8, "", "want a JSON value"},
	{`{"a":[1 2]}`, 8, "", `want ']'`},
	{`{"a":1}{}`, 7, "", "something follows"},
	{`{"a":1} x`, 8, "", "something follows"},
	{"{\"a\":1}\x00", 7, "", "something follows"},
	{`{"a":tru}`, 5, "", "want a JSON value"},
	{`{"a":nulll}`, 9, "", `want '}'`},
	{`{"a":NaN}`, 5, "", "want a JSON value"},
	{`{"a":Infinity}`, 5, "", "want a JSON value"},
	{`{"a":-Infinity}`, 6, "", "want a digit"},
	{`{"a":+1}`, 5, "", "want a JSON value"},
	{`{"a":01}`, 7, "", "starts with 0"},
	{`{"a":-01}`, 8, "", "starts with 0"},
	{`{"a":1.}`, 7, "", "digit after the point"},
	{`{"a":.5}`, 5, "", "want a JSON value"},
	{`{"a":1e}`, 7, "", "digit in the exponent"},
	{`{"a":1e+}`, 8, "", "digit in the exponent"},
	{`{"a":0x10}`, 6, "", `want '}'`},
	{`{"a":1_000}`, 6, "", `want '}'`},
	{`{"a":1e309}`, 5, "", `"1e309" is too large`},
	{`{"a":-1e99999}`, 5, "", "is too large"},
	{`{"a":1` + strings.Repeat("0", 400) + `}`, 5, "", "is too large"},
	{`{"a":"`, 6, "", "ends inside a string"},
	{`{"a":"\`, 6, "", "ends inside a string"},
	{"{\"a\":\"\n\"}", 6, "", "control character 0xa"},
	{"{\"a\":\"\x1f\"}", 6, "", "control character 0x1f"},
	{`{"a":"\x41"}`, 6, "", "want one of"},
	{`{"a":"\u12g4"}`, 6, "", "want one of"},
	{`{"a":"\u+123"}`, 6, "", "want one of"},
	{`{"a":"\u12"}`, 6, "", "want one of"},
	{`{"a":"\ud800"}`, 6, "", "first half of a surrogate pair"},
	{`{"a":"\ud800A"}`, 6, "", "first half of a surrogate pair"},
	{`{"a":"\ud800\ud800"}`, 6, "", "first half of a surrogate pair"},
	{`{"a":"\udc00"}`, 6, "", "second half of a surrogate pair"},
	{"{\"a\":\"\xff\"}", 6, "", "not valid UTF-8"},
	{"{\"a\":\"\xed\xa0\x80\"}", 6, "", "not valid UTF-8"},
	{"{\"\xc0\x80\":1}", 2, "", "not valid UTF-8"},
	{`{"a":1,"a":2}`, -1, "a", "there twice"},
	{`{"a":1,"\u0061":2}`, -1, "a", "there twice"},
	{`{"x":[{"b":1,"b":1}]}`, -1, "b", "there twice"},
	{`{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, 68, "", "more than 64 deep"},
	{strings.Repeat(`{"a":`, 1_000_000), 320, "", "more than 64 deep"},
	{`{"a":[` + strings.Repeat("0,", maxValues) + `0]}`, 6 + 2*(maxValues-2), "", "more than 200000 values"},
	{strings.Repeat(" ", maxJSONBytes) + "{}", 0, "", "want at most 6291456"},
}

func TestJSONIsRefused(t *testing.T) {
	many := `{"k0":0`
	for i := 1; i < 100; i++ {
		many += fmt.Sprintf(`,"k%d":%d`, i, i)
	}
	cases := append(refused[:len(refused):len(refused)], refused[0])
	cases[len(cases)-1].json, cases[len(cases)-1].offset = many+`,"k50":0}`, -1
	cases[len(cases)-1].key, cases[len(cases)-1].reason = "k50", "there twice"
	for name, decode := range decoders(t) {
		for _, c := range cases {
			o, err := parseJSON("c.json", 0, []byte(c.json), decode)
			require.Nil(t, o)
			var e *Error
			require.ErrorAs(t, err, &e, "%s: %.80s", name, c.json)
			require.ErrorContains(t, err, c.reason, "%s: %.80s", name, c.json)
			require.Equal(t, c.offset, e.Offset, "%s: %.80s", name, c.json)
			require.Equal(t, c.key, e.Key)
			require.Equal(t, "c.json", e.File)
			require.Less(t, len(err.Error()), 300)
		}
	}
}

func TestLargestJSONFitsMemory(t *testing.T) {
	var keys strings.Builder
	keys.WriteString(`{"k":0`)
	for i := range maxValues - 2 {
		fmt.Fprintf(&keys, `,"k%d":0`, i)
	}
	keys.WriteString("}")
	docs := map[string]string{
		"numbers": `{"a":[` + strings.Repeat("0,", maxValues-3) + `0]}`,
		"arrays":  `{"a":[` + strings.Repeat("[],", maxValues-3) + `0]}`,
		"objects": `{"a":[` + strings.Repeat("{},", maxValues-3) + `0]}`,
		"strings": `{"a":[` + strings.Repeat(`"`+strings.Repeat("x", 28)+`",`, maxValues-3) + `0]}`,
		"keys":    keys.String(),
		"text":    `{"a":"` + strings.Repeat("x", maxJSONBytes-8) + `"}`,
	}
	for decoder, decode := range decoders(t) {
		for name, doc := range docs {
			data := []byte(doc)
			took, allocated := invariants.Cost(func() {
				_, err := parseJSON("c.json", 0, data, decode)
				require.NoError(t, err, name)
			})
			t.Logf("%s, %s: %d bytes, %v, %d KiB allocated", decoder, name, len(data), took, allocated>>10)
			require.True(t, invariants.Within(took, time.Second), "%v", took)
			require.Less(t, allocated, uint64(64<<20), "%s: %s", decoder, name)
		}
	}
}

func TestObjectGetters(t *testing.T) {
	o, err := ParseJSON("config.json", []byte(`{"i":3,"whole":4.0,"f":0.5,"big":18446744073709551615,"s":"x","b":true,"n":null,
		"a":[1,2],"mixed":[1,"x"],"o":{"f":1e-6,"deep":[{"q":1}]}}`))
	require.NoError(t, err)
	require.Equal(t, "config.json", o.File())
	require.Equal(t, []string{"i", "whole", "f", "big", "s", "b", "n", "a", "mixed", "o"}, o.Keys())
	require.Equal(t, 10, o.Len())
	for key, want := range map[string]int64{"i": 3, "whole": 4} {
		got, ok, err := o.Int(key)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	for key, want := range map[string]float64{"i": 3, "f": 0.5, "big": math.MaxUint64} {
		got, ok, err := o.Float(key)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	s, ok, err := o.String("s")
	require.Equal(t, "x", s)
	require.True(t, ok)
	require.NoError(t, err)
	b, ok, err := o.Bool("b")
	require.True(t, b && ok)
	require.NoError(t, err)
	ids, ok, err := o.Ints("a")
	require.Equal(t, []int64{1, 2}, ids)
	require.True(t, ok)
	require.NoError(t, err)
	ids, _, _ = o.Ints("i")
	require.Equal(t, []int64{3}, ids)
	a, ok, err := o.Array("mixed")
	require.Equal(t, []any{int64(1), "x"}, a)
	require.True(t, ok)
	require.NoError(t, err)
	inner, ok, err := o.Object("o")
	require.True(t, ok)
	require.NoError(t, err)
	_, _, err = inner.Int("f")
	require.EqualError(t, err, `config.json: key "o.f": 1e-06 is not an integer of 64 bits`)
	deep, _, _ := inner.Array("deep")
	_, _, err = deep[0].(*Object).String("q")
	require.EqualError(t, err, `config.json: key "o.deep.q": 1 is not a string`)

	for _, key := range []string{"n", "missing"} {
		_, ok, err := o.Int(key)
		require.False(t, ok)
		require.NoError(t, err)
		_, ok, err = o.Float(key)
		require.False(t, ok)
		require.NoError(t, err)
		_, ok, err = o.Ints(key)
		require.False(t, ok)
		require.NoError(t, err)
		_, ok, err = o.Object(key)
		require.False(t, ok)
		require.NoError(t, err)
	}
	for _, err := range []error{
		errOf(o.Int("f")), errOf(o.Int("big")), errOf(o.Float("s")), errOf(o.String("i")), errOf(o.Bool("i")), errOf(o.Object("a")),
		errOf(o.Array("o")), errOf(o.Ints("mixed")), errOf(o.Ints("s")),
	} {
		var e *Error
		require.ErrorAs(t, err, &e)
		require.NotEmpty(t, e.Key)
	}
}

func errOf[T any](_ T, _ bool, err error) error { return err }

// FuzzJSON holds the two decoders against each other: what the scan accepts, both decode, to the same tree or to the same
// duplicate key.
func FuzzJSON(f *testing.F) {
	for _, c := range accepted {
		f.Add([]byte(c.json))
	}
	for _, c := range refused {
		if len(c.json) < 1000 {
			f.Add([]byte(c.json))
		}
	}
	f.Add([]byte(`{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}`))
	both := decoders(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		std, stdErr := parseJSON("fuzz.json", 0, data, decodeStd)
		simd, ok := both["simd"]
		if !ok {
			return
		}
		fast, fastErr := parseJSON("fuzz.json", 0, data, simd)
		if fmt.Sprint(stdErr) != fmt.Sprint(fastErr) {
			t.Fatalf("encoding/json says %v, simdjson says %v", stdErr, fastErr)
		}
		if stdErr != nil {
			if strings.Contains(stdErr.Error(), "cannot be decoded") {
				t.Fatalf("the scan accepts what no decoder takes: %v", stdErr)
			}
			return
		}
		require.Equal(t, std, fast)
	})
}
