package text

import (
	"testing"

	"quickdraft/internal/golden"
)

// cases are what has gone wrong for users of other engines with models and their texts, and the tests of each.
var cases = map[string][]string{
	"BOS twice or never":             {"text/TestPromptHasOneBOS", "text/tokenizer/TestPromptBOS", "text/tokenizer/TestGolden"},
	"several ids that end a turn":    {"text/tokenizer/TestGoldenEnds", "engine/TestEveryEndOfGenerationEnds"},
	"special tokens typed by a user": {"text/TestPromptHasOneBOS", "text/tokenizer/TestGuardedSpecialTokensStayText", "text/tokenizer/TestSpecialTokens"},
	"constructs of templates: selectattr, break, namespace, slices, methods, strftime_now, tojson, unset tokens": {
		"text/chat/TestSnippets", "text/chat/TestGoldenChat", "text/chat/TestGoldenTemplates", "text/chat/TestUnset",
	},
	"raise_exception says its text": {"text/TestRaisedErrorSaysWhereItIsFrom", "text/chat/TestErrors"},
	"a template that does not parse is named at load, never replaced": {
		"text/TestTemplateThatDoesNotCompile", "text/TestTemplateOfAnotherType", "text/TestTemplateFileThatCannotBeRead",
	},
	"nested loops, doubled strings, endless macros, a million parentheses": {"text/chat/TestHostile", "text/chat/TestInputsThatNestDeeply"},
	"long contexts: rope from metadata or rope_freqs.weight, type or rope_type, at positions up to 20,000": {
		"model/TestRopeFarOut", "model/TestLlama3Rope", "model/TestRopeSpellings",
	},
	"an unknown pre-tokenizer": {"text/tokenizer/TestGGUFUnknownPreTokenizer"},
}

func TestEveryCaseHasATest(t *testing.T) { golden.Covered(t, cases) }
