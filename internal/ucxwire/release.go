package ucxwire

// Release is what is known of a release of UCX, or of a range of them.
type Release struct {
	// First and Last are minor releases of UCX 1, inclusive.
	First, Last int
	// Tried names the release that was run against this implementation; empty if none was.
	Tried string
	Quirks
}

// Quirks are the differences on the wire between releases. A peer with other ones than these does not
// reach, or does not accept, what is sent in the wrong form.
type Quirks struct {
	// ListenerResource: the address in private data has the index of its resource. Private data of a
	// peer show it (Private.Resource); a side that sends first must know it.
	ListenerResource bool
	// WideNamespace: the device address of a loopback interface has 8 bytes of the network namespace,
	// not 4. The length of a peer's device address shows it.
	WideNamespace bool
	// KeyOfTCP: remote keys name the memory domain of tcp, with a key of no bytes. Releases without it
	// refuse such keys; all accept EmptyKey, which is what is sent here.
	KeyOfTCP bool
	// ReleaseInAddress: a worker address of version 1 says the release.
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

// QuirksOf returns the quirks of the release that sent an address, as far as the address shows them;
// known says that it does.
func QuirksOf(a *Address) (q Quirks, known bool) {
	if a.Release != NoRelease {
		for _, r := range Releases {
			for minor := r.First; minor <= r.Last; minor++ {
				if minor%16 == a.Release {
					q, known = r.Quirks, true // of two, which are 16 apart, the later one
				}
			}
		}
	}
	for _, d := range a.Devices {
		switch len(d.Addr) {
		case WideLoopbackLen:
			q.WideNamespace = true
		case NarrowLoopbackLen:
			q.WideNamespace = false
		}
	}
	return q, known
}
