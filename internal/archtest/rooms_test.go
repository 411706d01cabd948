package archtest

import (
	"flag"
	"go/importer"
	"go/token"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// rewrite writes the current counts, so that a review shows the change. Without it the test fails if the counts differ.
var rewrite = flag.Bool("rewrite", false, "write rooms/*.count")

// TestRooms checks the directions between the rooms of packages. With -v it lists all illegal uses.
func TestRooms(t *testing.T) {
	testenv.SkipRace(t, "one goroutine reads all files")
	for name, folder := range map[string]string{"ucp": "../../ucp", "xrccore": "../../uct/ib/internal/xrccore"} {
		t.Run(name, func(t *testing.T) { checkRooms(t, name, folder) })
	}
}

// checkRooms checks a package with the assignment rooms/<name>.txt and the counts rooms/<name>.count.
func checkRooms(t *testing.T, name, folder string) {
	assignment, count := "rooms/"+name+".txt", "rooms/"+name+".count"
	text, err := os.ReadFile(assignment)
	require.NoError(t, err)
	rooms, err := ParseRooms(string(text))
	require.NoError(t, err, assignment)
	p, err := LoadPackage(folder)
	require.NoError(t, err)
	for _, b := range p.BadRecords() {
		t.Error(b)
	}
	illegal, broken := rooms.Illegal(p)
	for _, b := range broken {
		t.Error(assignment+":", b)
	}
	if t.Failed() {
		return // the counts are not valid
	}
	if testing.Verbose() {
		for _, u := range illegal {
			t.Log(u)
		}
		t.Logf("%d illegal uses", len(illegal))
	}
	compareCounts(t, count, illegal)
}

// compareCounts compares the numbers of illegal uses with those in a file.
func compareCounts(t *testing.T, file string, illegal []RoomUse) {
	if *rewrite {
		require.NoError(t, os.WriteFile(file, []byte(CountRooms(illegal).String()), 0o644))
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	counts, err := ParseRoomCounts(string(text))
	require.NoError(t, err, file)
	for _, b := range counts.Compare(illegal) {
		t.Errorf("%s: %s", file, b)
	}
	if !t.Failed() {
		assert.Equal(t, counts.String(), string(text), "%s: -rewrite writes it", file)
	}
}

// typed returns a package of sources without imports.
func typed(t *testing.T, sources map[string]string) *TypedPackage {
	p := &TypedPackage{path: "p", fileSet: token.NewFileSet()}
	readers := map[string]io.Reader{}
	for name, source := range sources {
		p.folder = append(p.folder, name)
		readers[name] = strings.NewReader("package p\n" + source)
	}
	require.NoError(t, p.check(readers, importer.Default()))
	return p
}

// twoRooms is an assignment of low.go and high.go.
const twoRooms = "room low: low\nroom high: high\nuses high: low\n"

func TestRooms_Illegal(t *testing.T) {
	const high = "type tag struct{ n int }\nfunc (t *tag) send() {}\nfunc post() {}\nconst limit = 2\nvar count int\n"
	for _, tt := range []struct {
		name, low, high, names string
		want                   []string // symbols from low to high
	}{
		{"nothing", "func core() {}", high, "", nil},
		{"downward", "type ep struct{ n int }\nfunc (e *ep) flush() {}", high + "func f(e *ep) { e.flush(); e.n++ }", "", nil},
		{"function, variable, constant", "func core() int { post(); return limit + count }", high, "", []string{"post", "limit", "count"}},
		{"type", "func core(tag) {}", high, "", []string{"tag"}},
		{"field and method", "func core() { var t tag; t.n++; t.send() }", high, "", []string{"tag", "tag.n", "tag.send"}},
		{"literal with a field", "var t = tag{n: 1}", high, "", []string{"tag", "tag.n"}},
		{"field of a struct", "type ep struct { t *tag }", high, "", []string{"tag"}},
		{"method on a type of another room", "func (t *tag) cancel() {}", high, "", []string{"tag"}},
		{"local name like one of the package", "func core() int { count := 1; return count }", high, "", nil},
		{"generic type", "func core() { var x box[int]; x.v++; x.get() }", "type box[T any] struct{ v T }\nfunc (b *box[T]) get() {}", "",
			[]string{"box", "box.v", "box.get"}},
		{"field of a struct within", "func core() { s.in.n++ }", "var s struct{ in struct{ n int } }", "", []string{"s"}},
		{"name of a lower room", "func core() { post() }", high, "names low: post", nil},
		{"name of a higher room", "func core() { start() }\nfunc start() { post() }", high, "names high: start", []string{"start"}},
		{"method of a higher room", "type ep struct{}\nfunc (e *ep) send() { post() }", high, "names high: ep.send", nil},
		{"field of a higher room", "type ep struct { t *tag }\nfunc core(e *ep) { _ = e.t }", high, "names high: ep.t", []string{"ep.t"}},
		{"type of a lower room with its fields", "func core(t tag) int { return t.n }", high, "names low: tag", nil},
		{"type of a lower room without its methods", "func core(t *tag) { t.send() }", high, "names low: tag", []string{"tag.send"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rooms, err := ParseRooms(twoRooms + tt.names)
			require.NoError(t, err)
			illegal, broken := rooms.Illegal(typed(t, map[string]string{"low.go": tt.low, "high.go": tt.high}))
			assert.Empty(t, broken)
			var symbols []string
			for _, u := range illegal {
				assert.Equal(t, []string{"low", "high", "low.go"}, []string{u.From, u.To, u.File}, u.Symbol)
				symbols = append(symbols, u.Symbol)
			}
			assert.Equal(t, tt.want, symbols)
		})
	}
}

func TestRooms_Mistakes(t *testing.T) {
	rooms, err := ParseRooms(twoRooms + "names low: gone core.gone\nroom other: other\n")
	require.NoError(t, err)
	_, broken := rooms.Illegal(typed(t, map[string]string{"low.go": "func core() {}", "high.go": "", "new.go": ""}))
	assert.Equal(t, []string{
		"new.go: has no room; name the room whose work it does in a comment //room:NAME (rooms are: low, high, other)",
		"other.go: has a room, but there is no such file",
		"core.gone: has a line in names, but there is nothing of that name",
		"gone: has a line in names, but there is nothing of that name",
	}, broken)
}

// TestRooms_Comments checks that a file with a room comment needs no line in the assignment.
func TestRooms_Comments(t *testing.T) {
	rooms, err := ParseRooms(twoRooms)
	require.NoError(t, err)
	illegal, broken := rooms.Illegal(typed(t, map[string]string{
		"low.go": "//room:high\n", "high.go": "func post() {}", "new.go": "//room:low\n\nfunc core() { post() }", "lost.go": "//room:attic\n",
	}))
	assert.Equal(t, []string{
		"lost.go: names room attic, which is no room",
		"low.go: has a room comment and a line of its own; delete one",
		"lost.go: has no room; name the room whose work it does in a comment //room:NAME (rooms are: low, high)",
	}, broken)
	require.Len(t, illegal, 1)
	assert.Equal(t, "post from new.go:4 (low) to high", illegal[0].String())
}

func TestRoomUse_String(t *testing.T) {
	rooms, err := ParseRooms(twoRooms)
	require.NoError(t, err)
	illegal, _ := rooms.Illegal(typed(t, map[string]string{"low.go": "func core() {\npost() }", "high.go": "func post() {}"}))
	require.Len(t, illegal, 1)
	assert.Equal(t, "post from low.go:3 (low) to high", illegal[0].String())
}

func TestParseRooms_Directions(t *testing.T) {
	r, err := ParseRooms("room a: x y\nroom b:\nroom c:\nroom d:\nuses b: a\nuses c: b # and what b uses\nuses d: *\n")
	require.NoError(t, err)
	for _, tt := range []struct {
		from, to string
		want     bool
	}{
		{"a", "a", true}, {"b", "a", true}, {"c", "a", true}, {"d", "c", true}, {"a", "b", false}, {"a", "c", false}, {"c", "d", false},
	} {
		assert.Equal(t, tt.want, r.permits(tt.from, tt.to), "%s to %s", tt.from, tt.to)
	}
}

func TestParseRooms_Mistakes(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"no keyword", "a: b", `line 1: "a" is not of the form: room, uses or names, a room, a colon`},
		{"other keyword", "\nfile a: b", "line 2: unknown keyword file"},
		{"room twice", "room a: b\nroom a: c", "line 2: room a is there twice"},
		{"file twice", "room a: b\nroom c: b", "line 2: b is in a and in c"},
		{"name twice", "room a: b\nnames a: f\nnames a: f", "line 3: f is in a and in a"},
		{"name in no room", "room a: b\nnames c: f", "f is in c, which is no room"},
		{"uses no room", "room a: b\nuses a: c", "c is no room"},
		{"no room uses", "room a: b\nuses c: a", "c is no room"},
		{"circle", "room a: b\nroom c: d\nroom e: f\nuses a: c\nuses c: e\nuses e: a", "a is above itself"},
		{"circle with all", "room a: b\nroom c: d\nuses a: *\nuses c: a", "a is above itself"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseRooms(tt.text)
			assert.EqualError(t, err, tt.want)
		})
	}
}

func TestRoomCounts(t *testing.T) {
	uses := []RoomUse{{"post", "core", "tag", "ep.go", 3}, {"send", "core", "tag", "ep.go", 4}, {"key", "core", "rma", "ep.go", 5}}
	counts := CountRooms(uses)
	assert.Equal(t, RoomCounts{"core -> tag": 2, "core -> rma": 1}, counts)
	again, err := ParseRoomCounts(counts.String())
	require.NoError(t, err)
	assert.Equal(t, counts, again)
	for _, tt := range []struct {
		name string
		was  RoomCounts
		want []string
	}{
		{"equal", counts, nil},
		{"risen", RoomCounts{"core -> tag": 1, "core -> rma": 1},
			[]string{"core -> tag: 2 illegal uses, 1 before:\n\tpost from ep.go:3 (core) to tag\n\tsend from ep.go:4 (core) to tag"}},
		{"new", RoomCounts{"core -> tag": 2}, []string{"core -> rma: 1 illegal uses, 0 before:\n\tkey from ep.go:5 (core) to rma"}},
		{"fallen", RoomCounts{"core -> tag": 3, "core -> rma": 1},
			[]string{"core -> tag: fewer illegal uses than before; write this line: core -> tag 2"}},
		{"gone", RoomCounts{"core -> tag": 2, "core -> rma": 1, "msg -> tag": 1},
			[]string{"msg -> tag: no illegal use is left; delete its line"}},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, tt.was.Compare(uses)) })
	}
	for _, bad := range []string{"core tag 1", "core -> tag", "core -> tag x", "core -> tag 0"} {
		_, err := ParseRoomCounts("# one\n\n" + bad)
		assert.ErrorContains(t, err, "line 3: ", bad)
	}
}
