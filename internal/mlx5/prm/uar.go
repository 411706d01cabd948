package prm

// Anatomy of a UAR page (mlx5 PRM, UAR page format). Offsets in bytes.
const (
	UARPageLen = 4096
	// CQArm takes the arm word of a CQ and its number, 8 bytes.
	CQArm = 0x20
	// UUAR0 and UUAR1 are the two BlueFlame registers for user space;
	// the page has two others for the kernel.
	UUAR0 = 0x800
	UUAR1 = 0xa00
	// BFRegLen is the length of a BlueFlame register: two buffers, used in turn
	// so that successive posts do not use the same write-combining buffer.
	BFRegLen = 512
	BFBufLen = BFRegLen / 2
	// UUARsPerPage is the number of micro-UARs of a page for user space.
	UUARsPerPage = 2
)

// UUAROffset is the page offset of micro-UAR n, 0 or 1, of a page.
func UUAROffset(n int) uint32 { return UUAR0 + uint32(n)*BFRegLen }
