package ucxwire

// Release describes a range of releases of UCX.
type Release struct {
	// First and Last are minor releases of UCX 1, inclusive.
	First, Last int
	// Tried is the release that the tests have run with; empty if none.
	Tried string
	Quirks
}

// Quirks are the differences on the wire between releases. A peer cannot use an address, private data or a key in the form of
// another release. What a peer sends shows its form; ucxpeer detects it there (EP.Explain), and has a setting for each form
// that a side must know before it receives anything.
type Quirks struct {
	// ListenerResource: the address in private data has the index of its resource. Private data of a
	// peer show it (Private.Resource); the client of a listener sends first, so it must know.
	ListenerResource bool
	// WideNamespace: the device address of a loopback interface has 8 bytes of the network namespace,
	// not 4. The length of a peer's device address shows it.
	WideNamespace bool
	// KeyOfTCP: remote keys name the memory domain of tcp, with a key of no bytes. Releases without it
	// reject such keys. All releases accept EmptyKey, which ucxpeer sends.
	KeyOfTCP bool
	// ReleaseInAddress: a worker address of version 1 contains the release.
	ReleaseInAddress bool
}

// Releases are in order, without gaps.
var Releases = []Release{
	{12, 13, "1.13.1", Quirks{WideNamespace: true, KeyOfTCP: true}},
	{14, 15, "", Quirks{ListenerResource: true, WideNamespace: true, KeyOfTCP: true}},
	{16, 18, "1.18.1", Quirks{ListenerResource: true, WideNamespace: true, KeyOfTCP: true, ReleaseInAddress: true}},
	{19, 23, "1.23.0", Quirks{ListenerResource: true, ReleaseInAddress: true}},
}

// Loopback device addresses of transport tcp, in bytes: with 8 and with 4 bytes of the network namespace.
const (
	WideLoopbackLen   = 18
	NarrowLoopbackLen = 14
)
