"""The compiler's texts and protos, made into typed values. The only room that reads them."""
