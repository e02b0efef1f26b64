package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/encoding/openapi"
)

const (
	// A ConfigMap holds 1 MiB.
	maxSchema = 512 << 10
	// References are expanded, and may refer to themselves.
	maxDepth  = 32
	maxValues = 20_000
	// The field whose schema is made.
	parameterField = "parameter"
	contextField   = "context"
	// Parts of comments: the description of a parameter, and its short name on a command line.
	usageTag = "+usage="
	shortTag = "+short"
)

// schemaOf returns the OpenAPI schema of the parameters of a template.
func schemaOf(source string) (json.RawMessage, *failure) {
	file, err := parser.ParseFile("", source, parser.ParseComments)
	if err != nil {
		return nil, newFailure(syntax, err)
	}
	if !keepParameter(file) {
		return emptySchema(), nil
	}
	if refersToItself(file) {
		return nil, userFailure("parameters that refer to themselves have no schema")
	}
	value, failure := buildFile(file)
	if failure != nil {
		return nil, failure
	}
	parameter := value.LookupPath(cue.ParsePath(parameterField))
	// An embedded reference may have brought no parameters.
	if !parameter.Exists() {
		return emptySchema(), nil
	}
	if err := parameter.Validate(); err != nil {
		return nil, failureOf(conflict, err, file)
	}
	if left := maxValues; exceeds(parameter, maxDepth, &left) {
		return nil, userFailure("more than %d levels or %d values of parameters", maxDepth, maxValues)
	}
	// Schemas are made of definitions only.
	definition := value.Context().CompileString("{}").FillPath(cue.MakePath(cue.Def(parameterField)), parameter)
	document, err := openapi.Generate(definition, &openapi.Config{ExpandReferences: true})
	if err != nil {
		return nil, failureOf(conflict, err, file)
	}
	path := cue.ParsePath("components.schemas." + parameterField)
	encoded, err := value.Context().BuildFile(document).LookupPath(path).MarshalJSON()
	if err != nil {
		return nil, failureOf(incomplete, err, file)
	}
	return describedSchema(encoded)
}

// emptySchema returns the schema of a template without parameters.
func emptySchema() json.RawMessage {
	return json.RawMessage(`{"type":"object"}`)
}

// exceeds returns true if a value has more levels, or more values than are left.
func exceeds(value cue.Value, levels int, left *int) bool {
	if *left--; levels == 0 || *left < 0 {
		return true
	}
	// The evaluation ends at a value that contains itself, the generator of schemas does not.
	if err := value.Err(); err != nil && strings.Contains(err.Error(), "structural cycle") {
		return true
	}
	exceed := func(value cue.Value) bool { return exceeds(value, levels-1, left) }
	if operator, alternatives := value.Eval().Expr(); operator == cue.OrOp {
		return slices.ContainsFunc(alternatives, exceed)
	}
	element := cue.AnyString
	switch value.IncompleteKind() {
	case cue.StructKind:
		fields, err := value.Fields(cue.Optional(true))
		for err == nil && fields.Next() {
			if exceed(fields.Value()) {
				return true
			}
		}
	case cue.ListKind:
		element = cue.AnyIndex
		elements, err := value.List()
		for err == nil && elements.Next() {
			if exceed(elements.Value()) {
				return true
			}
		}
	default:
		return false
	}
	others := value.LookupPath(cue.MakePath(element))
	return others.Exists() && exceed(others)
}

// keepParameter removes the declarations that the parameters don't depend on: others may call functions, whose packages only
// the parent has. It returns false if there can't be parameters.
func keepParameter(file *ast.File) bool {
	declared := map[string][]ast.Decl{}
	for _, declaration := range file.Decls {
		for _, name := range declaredNames(declaration) {
			declared[name] = append(declared[name], declaration)
		}
	}
	if declared[parameterField] == nil {
		return false
	}
	kept, imported := map[ast.Decl]bool{}, map[*ast.ImportSpec]bool{}
	isNeeded, needed := map[string]bool{parameterField: true}, []string{parameterField}
	need := func(name string) {
		if !isNeeded[name] {
			isNeeded[name] = true
			needed = append(needed, name)
		}
	}
	refer := func(node ast.Node) bool {
		ident, ok := node.(*ast.Ident)
		if !ok {
			return true
		}
		if spec, ok := ident.Node.(*ast.ImportSpec); ok {
			imported[spec] = true
		}
		// Of identifiers that are not declared, only the context matters.
		if ident.Scope == ast.Node(file) || ident.Node == nil && ident.Name == contextField {
			need(ident.Name)
		}
		return true
	}
	for len(needed) > 0 {
		name := needed[len(needed)-1]
		needed = needed[:len(needed)-1]
		for _, declaration := range declared[name] {
			if !kept[declaration] {
				kept[declaration] = true
				ast.Walk(declaration, refer, nil)
			}
		}
	}
	file.Decls = slices.DeleteFunc(file.Decls, func(declaration ast.Decl) bool {
		imports, ok := declaration.(*ast.ImportDecl)
		if !ok {
			return !kept[declaration]
		}
		imports.Specs = slices.DeleteFunc(imports.Specs, func(spec *ast.ImportSpec) bool { return !imported[spec] })
		return len(imports.Specs) == 0
	})
	if isNeeded[contextField] {
		file.Decls = append(file.Decls, contextTypes())
	}
	// The build lists them again.
	file.Unresolved = nil
	return true
}

// refersToItself returns true if a declaration of the top level contains itself. CUE's generator of schemas would not end.
func refersToItself(file *ast.File) bool {
	references := map[string][]string{}
	for _, declaration := range file.Decls {
		for _, name := range declaredNames(declaration) {
			references[name] = append(references[name], containedNames(declaration, file)...)
		}
	}
	const open, closed = 1, 2
	states := map[string]int{}
	var contains func(name string) bool
	contains = func(name string) bool {
		if states[name] != 0 {
			return states[name] == open
		}
		states[name] = open
		found := slices.ContainsFunc(references[name], contains)
		states[name] = closed
		return found
	}
	return contains(parameterField)
}

// containedNames returns the names of the top level whose whole values a declaration contains.
func containedNames(declaration ast.Decl, file *ast.File) []string {
	var names []string
	ast.Walk(declaration, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.SelectorExpr:
			// A field of it.
			_, isName := node.X.(*ast.Ident)
			return !isName
		case *ast.Ident:
			if node.Scope == ast.Node(file) {
				names = append(names, node.Name)
			}
		}
		return true
	}, nil)
	return names
}

// declaredNames returns the names of the top level that a declaration makes or adds to.
func declaredNames(declaration ast.Decl) []string {
	switch declaration := declaration.(type) {
	case *ast.Field:
		var names []string
		if alias, ok := declaration.Label.(*ast.Alias); ok {
			names = append(names, alias.Ident.Name)
		}
		if name, _, err := ast.LabelName(declaration.Label); err == nil {
			names = append(names, name)
		}
		return names
	case *ast.LetClause:
		return []string{declaration.Ident.Name}
	case *ast.EmbedDecl:
		return fieldNames(declaration.Expr)
	case *ast.Comprehension:
		return fieldNames(declaration.Value)
	}
	return nil
}

func fieldNames(value ast.Expr) []string {
	switch value := value.(type) {
	case *ast.Ident:
		if value.Scope == nil {
			return nil
		}
		// Only the build knows the fields of what it refers to.
		return []string{parameterField}
	case *ast.StructLit:
		var names []string
		for _, declaration := range value.Elts {
			names = append(names, declaredNames(declaration)...)
		}
		return names
	}
	return nil
}

// contextTypes returns the types of the context, for defaults such as context.namespace.
func contextTypes() *ast.Field {
	text := func() ast.Expr { return ast.NewIdent("string") }
	types := ast.NewStruct(
		"name", text(), "appName", text(), "namespace", text(), "appRevision", text(), "revision", text(),
		"appRevisionNum", ast.NewIdent("int"), "componentType", text(), "cluster", text(), "replicaKey", text(),
		"publishVersion", text(), "workflowName", text(), "stepName", text(),
		"clusterVersion", ast.NewStruct(
			"major", text(), "minor", ast.NewIdent("int"), "gitVersion", text(), "platform", text(),
		),
		&ast.Ellipsis{},
	)
	return &ast.Field{Label: ast.NewIdent(contextField), Value: types}
}

// describedSchema adds titles, and the descriptions that comments hold, where KubeVela has them.
func describedSchema(encoded []byte) (json.RawMessage, *failure) {
	if len(encoded) > maxSchema {
		return nil, userFailure("the schema of the parameters has %d bytes, more than %d", len(encoded), maxSchema)
	}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	// Large numbers stay as they are.
	decoder.UseNumber()
	var schema map[string]any
	if err := decoder.Decode(&schema); err != nil {
		return nil, newFailure(user, err)
	}
	if !describe("", schema) {
		return nil, userFailure("a list of different elements has no schema")
	}
	described, err := json.Marshal(schema)
	if err != nil {
		return nil, newFailure(user, err)
	}
	if len(described) > maxSchema {
		return nil, userFailure("the schema of the parameters has %d bytes, more than %d", len(described), maxSchema)
	}
	return described, nil
}

// describe returns false if readers of OpenAPI 3.0 would refuse the schema.
func describe(name string, schema map[string]any) bool {
	switch schema["type"] {
	case "object":
		properties, _ := schema["properties"].(map[string]any)
		for name, property := range properties {
			if property, ok := property.(map[string]any); ok && !describe(name, property) {
				return false
			}
		}
	case "array":
		switch items := schema["items"].(type) {
		case map[string]any:
			if !describe("", items) {
				return false
			}
		case []any:
			return false
		}
	}
	if name != "" {
		schema["title"] = name
	}
	if description, ok := schema["description"].(string); ok {
		if description = usage(description); description == "" {
			delete(schema, "description")
		} else {
			schema["description"] = description
		}
	}
	return true
}

// usage returns the description in a comment.
func usage(comment string) string {
	if _, text, ok := strings.Cut(comment, usageTag); ok {
		comment, _, _ = strings.Cut(text, usageTag)
	}
	if text, _, ok := strings.Cut(comment, shortTag); ok {
		comment = strings.TrimSpace(text)
	}
	return comment
}
