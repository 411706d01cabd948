package tuple

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestTable: the table has the entries of a map after any adds and removes, and uses no more memory than needed.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tags table[int]
		model := map[uint64]int{}
		few := rapid.Uint64Range(0, 40)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				tag := few.Draw(t, "tag")
				if _, ok := model[tag]; !ok {
					model[tag] = len(model) + 1
					tags.add(tag, model[tag])
				}
			},
			"remove": func(t *rapid.T) {
				tag := few.Draw(t, "tag")
				delete(model, tag)
				tags.remove(tag)
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(model), tags.n)
				for tag := range uint64(42) {
					require.Equal(t, model[tag], tags.find(tag), "tag %d", tag)
				}
				seen := map[uint64]int{}
				tags.all(func(tag uint64, v int) bool { seen[tag] = v; return true })
				require.Equal(t, model, seen)
			},
		})
	})
}
