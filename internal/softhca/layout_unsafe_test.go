package softhca

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/softhca/internal/table"
)

// Words that processes share are aligned at every address of their segment, which begins with a
// page.
func TestAlignment(t *testing.T) {
	for name, a := range map[string][2]uintptr{
		"ring control": {unsafe.Alignof(ring.Control{}), unsafe.Sizeof(ring.Control{})},
		"packet":       {unsafe.Alignof(ring.Packet{}), unsafe.Sizeof(ring.Packet{})},
		"control page": {unsafe.Alignof(control{}), unsafe.Sizeof(control{})},
		"QP entry":     {unsafe.Alignof(table.QP{}), table.EntryLen},
		"MR entry":     {unsafe.Alignof(table.MR{}), table.EntryLen},
	} {
		assert.Contains(t, []uintptr{4, 8}, a[0], name)
		assert.Zero(t, a[1]%a[0], name)
	}
	for name, off := range map[string]int{"requests": linkReq, "responses": linkResp, "guards": linkGuards,
		"QPs": table.QPsAt, "MRs": table.MRsAt, "records": ring.RecordAlign, "a ring": ring.Span, "a guard": guardLen} {
		assert.Zero(t, off%64, name)
	}
}
