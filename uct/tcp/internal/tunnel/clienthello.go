package tunnel

// IsClientHello reports whether the first bytes of a connection, at least two, begin a TLS
// ClientHello: a handshake record of version 3.x (RFC 8446, 5.1).
func IsClientHello(first []byte) bool { return first[0] == 22 && first[1] == 3 }

// NoTLSAlert is the reply to a TLS client of a server without TLS: a fatal alert,
// no_application_protocol (RFC 8446, 6.2; RFC 7301, 3.2).
var NoTLSAlert = [...]byte{21, 3, 3, 0, 2, 2, 120}
