package chat

// exprKind says what an expr is and what its args are.
type exprKind uint8

const (
	exLit     exprKind = iota // text: as the library reads it
	exStr                     // text: the string
	exName                    // text: the name
	exList                    // args: items
	exTuple                   // args: items
	exDict                    // args: key, value, key, value ...
	exAttr                    // text: attribute; args: object
	exItem                    // args: object, key
	exSlice                   // args: object, start, stop, step; nil where left out
	exCall                    // args: callee, arguments; kw, star, starKw
	exFilter                  // text: name; args: value (nil at the head of a filter block), arguments; kw, star, starKw
	exTest                    // text: name; args: value, arguments; kw
	exUnary                   // text: + or -; args: operand
	exNot                     // args: operand
	exBinary                  // ops: between args, all + and - or all * / // % or all **, from the left
	exConcat                  // args: parts
	exAnd                     // args
	exOr                      // args
	exCompare                 // ops: between args
	exCond                    // args: condition, value, other value or nil
)

type keyword struct {
	name  string
	value *expr
}

type expr struct {
	kind   exprKind
	line   int
	text   string
	ops    []string
	args   []*expr
	kw     []keyword
	star   *expr // *args
	starKw *expr // **kwargs
}

// stmtKind says what a stmt is and which fields it uses.
type stmtKind uint8

const (
	stText     stmtKind = iota // text
	stOutput                   // expr
	stIf                       // branches
	stFor                      // target, expr, filter, recursive, body, other
	stSet                      // target, expr
	stSetBlock                 // target, filter or nil, body
	stMacro                    // text: name; params; body
	stCall                     // params; expr: the call; body
	stFilter                   // filter; body
	stWith                     // params, body
	stBreak
	stContinue
	stScope // body, in place: generation and block
)

// param is a parameter of a macro or a variable of with. value is its default, or nil.
type param struct {
	name  string
	value *expr
}

type branch struct {
	cond *expr // nil for else
	body []*stmt
}

type stmt struct {
	kind      stmtKind
	line      int
	text      string
	target    *expr // exName, exTuple of targets, or exAttr of a name (namespace)
	expr      *expr
	filter    *expr
	recursive bool
	params    []param
	branches  []branch
	body      []*stmt
	other     []*stmt
}
