package handshake

// Ignored counts messages and entries that were late, repeated or invalid.
func (c *Conn) Ignored() int { return c.ignored }
