package chat

import (
	"fmt"

	"github.com/ardanlabs/jinja"
)

// Validate checks the shape of a conversation before a template sees it, because templates are lenient and would make a
// prompt of anything: at least one message; each an object with a role; content that is text, null or a list of parts with
// a type; tool calls with a function's name and arguments; tools that are objects. Errors name the place and the value.
func (in *Input) Validate() error {
	if !in.Messages.IsList() {
		return fmt.Errorf("messages is %s, a list is right", typeName(in.Messages))
	}
	messages := in.Messages.AsList().Items
	if len(messages) == 0 {
		return fmt.Errorf("messages is empty, at least one is right")
	}
	for i, m := range messages {
		if err := validMessage(fmt.Sprintf("messages[%d]", i), m); err != nil {
			return err
		}
	}
	if !given(in.Tools) {
		return nil
	}
	if !in.Tools.IsList() {
		return fmt.Errorf("tools is %s, a list is right", typeName(in.Tools))
	}
	for i, t := range in.Tools.AsList().Items {
		if !t.IsDict() {
			return fmt.Errorf("tools[%d] is %s, an object is right", i, typeName(t))
		}
	}
	return nil
}

func validMessage(at string, m jinja.Value) error {
	if !m.IsDict() {
		return fmt.Errorf("%s is %s, an object is right", at, typeName(m))
	}
	d := m.AsDict()
	if role := d.Data["role"]; !role.IsString() || role.AsString() == "" {
		return fmt.Errorf("%s.role is %s, a name such as \"user\" is right", at, typeName(role))
	}
	if err := validContent(at+".content", d.Data["content"]); err != nil {
		return err
	}
	calls := d.Data["tool_calls"]
	if !given(calls) {
		return nil
	}
	if !calls.IsList() {
		return fmt.Errorf("%s.tool_calls is %s, a list is right", at, typeName(calls))
	}
	for i, call := range calls.AsList().Items {
		if err := validCall(fmt.Sprintf("%s.tool_calls[%d]", at, i), call); err != nil {
			return err
		}
	}
	return nil
}

func validContent(at string, content jinja.Value) error {
	switch {
	case !given(content), content.IsString():
		return nil
	case !content.IsList():
		return fmt.Errorf("%s is %s, a string, null or a list of parts is right", at, typeName(content))
	}
	for i, part := range content.AsList().Items {
		at := fmt.Sprintf("%s[%d]", at, i)
		if !part.IsDict() {
			return fmt.Errorf("%s is %s, an object is right", at, typeName(part))
		}
		d := part.AsDict()
		kind := d.Data["type"]
		if !kind.IsString() {
			return fmt.Errorf("%s.type is %s, a name such as \"text\" is right", at, typeName(kind))
		}
		if text := d.Data["text"]; kind.AsString() == "text" && !text.IsString() {
			return fmt.Errorf("%s.text is %s, a string is right", at, typeName(text))
		}
	}
	return nil
}

// validCall accepts {"function": {"name", "arguments"}} and the bare {"name", "arguments"} that some templates use.
func validCall(at string, call jinja.Value) error {
	if !call.IsDict() {
		return fmt.Errorf("%s is %s, an object is right", at, typeName(call))
	}
	d := call.AsDict()
	if f, ok := d.Get("function"); ok {
		at += ".function"
		if !f.IsDict() {
			return fmt.Errorf("%s is %s, an object is right", at, typeName(f))
		}
		d = f.AsDict()
	}
	if name := d.Data["name"]; !name.IsString() || name.AsString() == "" {
		return fmt.Errorf("%s.name is %s, a function's name is right", at, typeName(name))
	}
	if a := d.Data["arguments"]; given(a) && !a.IsString() && !a.IsDict() {
		return fmt.Errorf("%s.arguments is %s, an object or its JSON text is right", at, typeName(a))
	}
	return nil
}

// DecodeArguments replaces the JSON text of tool-call arguments, which is how requests carry them, by the object that
// templates expect. Text that is not a JSON object stays as it is.
func (in *Input) DecodeArguments() {
	if !in.Messages.IsList() {
		return
	}
	for _, m := range in.Messages.AsList().Items {
		if !m.IsDict() || !m.AsDict().Data["tool_calls"].IsList() {
			continue
		}
		for _, call := range m.AsDict().Data["tool_calls"].AsList().Items {
			if call.IsDict() && call.AsDict().Data["function"].IsDict() {
				call = call.AsDict().Data["function"]
			}
			if !call.IsDict() || !call.AsDict().Data["arguments"].IsString() {
				continue
			}
			if v, err := Decode([]byte(call.AsDict().Data["arguments"].AsString())); err == nil && v.IsDict() {
				call.AsDict().Set("arguments", v)
			}
		}
	}
}
