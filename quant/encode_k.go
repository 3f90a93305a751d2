package quant

func encodeQ2_K(dst []byte, src []float32)   {}
func encodeQ3_K(dst []byte, src []float32)   {}
func encodeQ4_K(dst []byte, src []float32)   {}
func encodeQ5_K(dst []byte, src []float32)   {}
func encodeQ6_K(dst []byte, src []float32)   {}
func encodeIQ4_NL(dst []byte, src []float32) {}
func encodeIQ4_XS(dst []byte, src []float32) {}
